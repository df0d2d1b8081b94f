"""What the requests of the API share: what a name, a hash and an id may be, and how a body is read."""

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
    """What a person or a program asks for: a misspelt field is refused."""

    model_config = ConfigDict(extra="forbid")


class AgentBody(BaseModel):
    """What an agent says: a newer one may say more."""

    model_config = ConfigDict(extra="ignore")
