"""All-reduces between all GPUs, a process each. Prints "ready", waits for a line, does its work, prints "done", and waits for
another line.

usage: collective.py PROCESSES TIMES BYTES
"""
import os
import sys

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing


def work(rank, processes, times, size, ready, go):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29541", LOCAL_RANK=str(rank))
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=processes)
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    distributed.all_reduce(data)
    torch.cuda.synchronize()
    ready.wait()
    if rank == 0:
        print("ready", flush=True)
    go[0].wait()
    for _ in range(times):
        a @ a
        distributed.all_reduce(data)
    torch.cuda.synchronize()
    ready.wait()
    if rank == 0:
        print("done", flush=True)
    go[1].wait()
    distributed.destroy_process_group()


if __name__ == "__main__":
    processes, times, size = (int(x) for x in sys.argv[1:4])
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(processes), [context.Event(), context.Event()]
    workers = [context.Process(target=work, args=(rank, processes, times, size, ready, go)) for rank in range(processes)]
    for w in workers:
        w.start()
    for event in go:
        sys.stdin.readline()
        event.set()
    for w in workers:
        w.join()
    sys.exit(max(abs(w.exitcode) for w in workers))
