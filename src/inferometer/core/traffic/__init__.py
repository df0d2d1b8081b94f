"""Traffic: what is asked of a service (arrivals, lengths, traces) and what came of it (figures, windows, the knee).

`load` sends it to a real server and the simulator to a modelled one. Nothing here opens a socket or looks at a clock.
"""
