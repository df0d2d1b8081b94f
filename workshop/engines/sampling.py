"""What llama.cpp takes to choose the likeliest of so many words: the figure behind `word` of its loop on a CPU.

    python -m workshop.engines.sampling smollm2-135m.gguf qwen2.5-0.5b.gguf

Time of the thread, which stands still while others have the core: the sampler runs on one.
"""

import sys
import time
from pathlib import Path
from statistics import median

from inferometer.engines.base import Request, Target
from inferometer.engines.llamacpp.direct import DirectSession
from inferometer.engines.llamacpp.session import open_session

_ROUNDS = 40


def main(files: list[str]) -> None:
    for file in files:
        session = open_session(Target(path=Path(file), format="gguf", text=True, threads=1, context=64), "llamacpp")
        if not isinstance(session, DirectSession):
            raise SystemExit("The sampler is called by the library's own functions, which are not found here.")
        list(session.generate(Request(prompt=(1, 2, 3, 4), generate=1)))  # so that there are words to choose from
        taken = []
        for _ in range(_ROUNDS):
            start = time.thread_time_ns()
            session.choose()
            taken.append(time.thread_time_ns() - start)
        words = session.vocabulary
        print(f"{file}: {words} words, {median(taken) / 1e3:.0f} us, {median(taken) / words:.2f} ns a word")
        session.close()


if __name__ == "__main__":
    main(sys.argv[1:])
