# A package that is
# not installed.
import cuda.tile as ct


@ct.kernel
def copy(a, b):
    i = ct.bid(0)
    ct.store(b, index=(i,), tile=ct.load(a, index=(i,), shape=(16,)))
