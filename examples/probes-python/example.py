"""Compresses blocks of text for some seconds and records what it does. usage: example.py [SECONDS]"""
import sys
import time
import zlib

from probes import Counter, Gauge, Histogram, Profile

SIZES = Histogram("toycompressor_compressed_bytes", {"level": "6"})
READ = Counter("toycompressor_bytes_in")
RATIO = Gauge("toycompressor_ratio")
STEPS = Profile("toycompressor_steps_nanoseconds")


def main():
    end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 10)
    blocks = 0
    while time.monotonic() < end or blocks == 0:
        with STEPS.time("make"):
            block = b"".join(b"%d " % (i * blocks % 1000) for i in range(2000))
        with STEPS.time("compress"):
            packed = zlib.compress(block, 6)
        READ.add(len(block))
        SIZES.record(len(packed))
        RATIO.set(len(block) / len(packed))
        blocks += 1
    print("%d blocks" % blocks)


if __name__ == "__main__":
    main()
