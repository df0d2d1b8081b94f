"""What `inferometer prepare` lays into a package of AOTInductor, for who reads one and who runs one."""

SCHEMA = "inferometer.package/1"
PROGRAM = "extra/program/"  # the exported program that was compiled, without its weights
ABOUT = "extra/inferometer.json"  # the machine it was compiled for, what it takes, and the layers of its kernels
