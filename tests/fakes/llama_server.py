"""A real llama.cpp server in a process of its own: `llama_server.py MODEL.gguf SLOTS [CONTEXT]` prints its address."""

import sys
import time


def main():
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_parallel, parameters.n_ctx = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    parameters.endpoint_metrics = True
    parameters.port = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    time.sleep(3600)


if __name__ == "__main__":
    main()
