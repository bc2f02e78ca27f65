import cuda.tile as ct
import torch


@ct.kernel
def wrong(x):
    block = ct.bid(0)
    ct.store(x, index=(block,), tile=x.nothing)  # expect: problem


def main():
    ct.launch(torch.cuda.current_stream(), (1, 1, 1), wrong, (torch.ones(32, device="cuda"),))
