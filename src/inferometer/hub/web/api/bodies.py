"""Types that the requests of the API share: names, hashes, ids, and the reading of bodies."""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=100)]
LongName = Annotated[str, Field(min_length=1, max_length=200)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[int, Field(ge=0, le=10**15)]
# In an address
PathName = Annotated[str, Path(min_length=1, max_length=100)]
PathHash = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
PathId = Annotated[str, Path(pattern="^[0-9a-z]{12}$")]


class Body(BaseModel):
    """The request of a person or a program: a misspelt field is refused."""

    model_config = ConfigDict(extra="forbid")


class AgentBody(BaseModel):
    """A message of an agent: a newer one may have more fields."""

    model_config = ConfigDict(extra="ignore")
