"""Keeps a GPU busy until it is ended: matrix products, with copies from the host between them, and 20 GB of its memory."""
import torch

held = torch.empty(20_000_000_000, dtype=torch.uint8, device="cuda")
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
there = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
print("load: running", flush=True)
while True:
    for _ in range(20):
        a @ a
    there.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
