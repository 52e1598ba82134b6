"""The elastic engine: order, shards, tree, exchange, loop, and the two programs that run them, driver and worker.

It knows nothing of scheduling or HTTP. Whatever the number of workers, a training ends with the same bits.
"""
