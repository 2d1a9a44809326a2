"""A decode loop shaped like an inference engine's: a small Llama-like model (24 layers, batch 1) on one GPU with PyTorch.

usage: decode.py eager|graph --turns            prints "ready"; for each line "SECONDS" on standard input runs that long and
                                                prints {"ops": tokens, "ns_per_op": X}; ends at the end of input
       decode.py eager|graph --steps N          runs N steps and ends
       decode.py eager|graph --steps N --trace F  the same under torch.profiler, whose trace goes to F as
                                                {"kernel name": [count, total ns]}
       decode.py eager|graph --steps N --profiler-inside  N steps, N under torch.profiler, N after it
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, VOCABULARY, CONTEXT = 1024, 16, 24, 32000, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.keys = torch.zeros(1, HEADS, CONTEXT, WIDTH // HEADS, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, position):
        q, k, v = self.qkv(self.norm_1(x)).view(1, 1, 3, HEADS, WIDTH // HEADS).unbind(2)
        self.keys.index_copy_(2, position, k.transpose(1, 2))
        self.values.index_copy_(2, position, v.transpose(1, 2))
        attended = F.scaled_dot_product_attention(q.transpose(1, 2), self.keys, self.values)
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, WIDTH))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token, position):
        x = self.embedding(token)
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.norm(x)).argmax(-1)


class Decoder:
    def __init__(self, mode):
        torch.manual_seed(0)
        self.model = Model().to("cuda", torch.bfloat16).eval()
        self.token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.steps = 0
        for _ in range(5):
            self.token.copy_(self.model(self.token, self.position))
        torch.cuda.synchronize()
        self.graph = None
        if mode == "graph":
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.captured = self.model(self.token, self.position)

    def step(self):
        self.position.fill_(self.steps % CONTEXT)
        if self.graph:
            self.graph.replay()
            self.token.copy_(self.captured)
        else:
            self.token.copy_(self.model(self.token, self.position))
        self.token.item()
        self.steps += 1

    def run_steps(self, n):
        for _ in range(n):
            self.step()
        torch.cuda.synchronize()

    def run_seconds(self, seconds):
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self.step()
            n += 1
        torch.cuda.synchronize()
        return n, (time.perf_counter() - start) * 1e9 / n


def kernels_of(profiler):
    """Kernel name -> [count, total ns] of a finished torch.profiler run."""
    with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as f:
        path = f.name
    profiler.export_chrome_trace(path)
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    os.unlink(path)
    kernels = {}
    for e in events:
        if e.get("cat") == "kernel":
            entry = kernels.setdefault(e["name"], [0, 0.0])
            entry[0] += 1
            entry[1] += e["dur"] * 1e3
    return kernels


def main():
    mode, options = sys.argv[1], sys.argv[2:]
    value = lambda name: options[options.index(name) + 1]
    with torch.inference_mode():
        if "--turns" in options:
            decoder = Decoder(mode)
            decoder.run_seconds(1.0)
            print("ready", flush=True)
            for line in sys.stdin:
                decoder.run_seconds(0.2)
                n, ns = decoder.run_seconds(float(line))
                print(json.dumps({"ops": n, "ns_per_op": round(ns, 1)}), flush=True)
            return
        steps = int(value("--steps"))
        if "--trace" in options:
            from torch.profiler import ProfilerActivity, profile
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                Decoder(mode).run_steps(steps)
            with open(value("--trace"), "w") as f:
                json.dump(kernels_of(profiler), f)
            return
        decoder = Decoder(mode)
        decoder.run_steps(steps)
        if "--profiler-inside" in options:
            from torch.profiler import ProfilerActivity, profile
            time.sleep(1.5)
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                decoder.run_steps(steps)
            print(json.dumps({"profiler_kernels": sum(n for n, _ in kernels_of(profiler).values())}), flush=True)
            decoder.run_steps(steps)
            time.sleep(4.5)
    print("done", flush=True)


main()
