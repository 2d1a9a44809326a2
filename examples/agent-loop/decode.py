"""A decode loop with PyTorch: batches of sequences grow token by token, attention reads a growing KV cache.

usage: decode.py [--kv concat|preallocated] [--seconds N] [--batch N] [--layers N] [--prompt N] [--tokens N]
                 [--device cuda|cpu] [--watch FILE]

Weights are random: what is computed is of no use, but it is what a decoder computes. --kv is how the cache grows. Rounds of
--tokens tokens are generated from --prompt cached ones until --seconds have passed, after one round of warm-up. The last
line is one JSON object: milliseconds per token (median, least and greatest round), tokens per second, and a sum over the chosen
tokens of one round, by which two runs can be seen to have computed the same.
--watch profiles the process from inside, through graphsignal.watch(), and leaves the last /signals document in FILE.
"""
import argparse
import json
import statistics
import time

HEADS, HEAD_WIDTH, VOCABULARY = 16, 128, 32000
WIDTH = HEADS * HEAD_WIDTH


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--kv", choices=["concat", "preallocated"], default="concat")
    p.add_argument("--seconds", type=float, default=15)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--prompt", type=int, default=4096)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--device", default="cuda")
    p.add_argument("--watch", metavar="FILE")
    return p.parse_args()


args = parse()
if args.watch:
    import graphsignal

    graphsignal.watch(output=args.watch)

import torch  # noqa: E402 - after watch()
import torch.nn.functional as F  # noqa: E402

DTYPE = torch.bfloat16 if args.device == "cuda" else torch.float32


def weight(*shape):
    return (torch.randn(*shape, device=args.device) * shape[-1] ** -0.5).to(DTYPE)


class ConcatenatedCache:
    """Keys and values of one layer, a new tensor for each token."""

    def __init__(self, keys, values):
        self.prompt_keys, self.prompt_values = keys, values
        self.reset()

    def reset(self):
        self.keys, self.values = self.prompt_keys, self.prompt_values

    def append(self, key, value):
        self.keys = torch.cat([self.keys, key], dim=2)
        self.values = torch.cat([self.values, value], dim=2)
        return self.keys, self.values


class PreallocatedCache:
    """Keys and values of one layer in tensors with room for all tokens of a round."""

    def __init__(self, keys, values):
        batch, heads, self.prompt, width = keys.shape
        room = (batch, heads, self.prompt + args.tokens, width)
        self.keys, self.values = keys.new_empty(room), values.new_empty(room)
        self.keys[:, :, : self.prompt], self.values[:, :, : self.prompt] = keys, values
        self.reset()

    def reset(self):
        self.length = self.prompt

    def append(self, key, value):
        end = self.length + 1
        self.keys[:, :, self.length : end] = key
        self.values[:, :, self.length : end] = value
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Layer:
    def __init__(self):
        self.qkv, self.out = weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH)
        self.up, self.down = weight(4 * WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH)
        shape = (args.batch, HEADS, args.prompt, HEAD_WIDTH)
        cache = ConcatenatedCache if args.kv == "concat" else PreallocatedCache
        self.cache = cache(weight(*shape), weight(*shape))

    def __call__(self, x):
        q, k, v = F.linear(F.rms_norm(x, (WIDTH,)), self.qkv).view(args.batch, 3, HEADS, 1, HEAD_WIDTH).unbind(1)
        keys, values = self.cache.append(k, v)
        attended = F.scaled_dot_product_attention(q, keys, values)
        x = x + F.linear(attended.reshape(args.batch, WIDTH), self.out)
        return x + F.linear(F.silu(F.linear(F.rms_norm(x, (WIDTH,)), self.up)), self.down)


@torch.no_grad()
def round_of_tokens():
    """Generates args.tokens tokens for each sequence; returns the seconds that took and the sum over the tokens."""
    for layer in layers:
        layer.cache.reset()
    token = torch.arange(args.batch, device=args.device)
    total = torch.zeros((), dtype=torch.int64, device=args.device)
    synchronize()
    begin = time.perf_counter()
    for _ in range(args.tokens):
        x = embedding[token]
        for layer in layers:
            x = layer(x)
        token = F.linear(F.rms_norm(x, (WIDTH,)), embedding).argmax(dim=-1)
        total += token.sum()
    synchronize()
    return time.perf_counter() - begin, int(total)


def synchronize():
    if args.device == "cuda":
        torch.cuda.synchronize()


torch.manual_seed(0)
embedding = weight(VOCABULARY, WIDTH)
layers = [Layer() for _ in range(args.layers)]
_, checksum = round_of_tokens()
print("ready", flush=True)
times, same = [], True
end = time.monotonic() + args.seconds
while time.monotonic() < end:
    seconds, total = round_of_tokens()
    same = same and total == checksum
    times.append(seconds / args.tokens)
print(json.dumps({
    "kv": args.kv,
    "rounds": len(times),
    "ms_per_token": round(statistics.median(times) * 1e3, 3),
    "least": round(min(times) * 1e3, 3),
    "greatest": round(max(times) * 1e3, 3),
    "tokens_per_second": round(args.batch / statistics.median(times), 1),
    "checksum": checksum,
    "same_in_all_rounds": same,
}))
