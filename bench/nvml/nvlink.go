package main

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

var (
	nvlinkGPU = regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[^)]+)\)`)
	// nvlinkLine is a link's "Data Tx: 12 KiB" or "CRC Errors: 0", or the speed that only an active one has.
	nvlinkLine = regexp.MustCompile(`^\s*Link \d+: (?:((?:Data|Raw) [TR]x|\w+ Errors): (\d+)|[\d.]+ GB/s)`)
)

// queryNVLink adds to the GPUs what `nvidia-smi nvlink` says: "nvlink/links", "nvlink/Data Tx", "nvlink/CRC Errors" and
// so on, over all links. Where there are none, it adds nothing.
func queryNVLink(ctx context.Context, gpus map[string]smiGPU) {
	for _, question := range [][]string{{"-s"}, {"-gt", "d"}, {"-gt", "r"}, {"-e"}} {
		out, err := exec.CommandContext(ctx, "nvidia-smi", append([]string{"nvlink"}, question...)...).Output()
		if err == nil {
			parseNVLink(out, gpus)
		}
	}
}

func parseNVLink(page []byte, gpus map[string]smiGPU) {
	var gpu smiGPU
	for line := range bytes.Lines(page) {
		text := strings.TrimRight(string(line), "\r\n")
		if m := nvlinkGPU.FindStringSubmatch(text); m != nil {
			gpu = nil
			for _, g := range gpus {
				if g["uuid"] == m[1] {
					gpu = g
				}
			}
			continue
		}
		m := nvlinkLine.FindStringSubmatch(text)
		if m == nil || gpu == nil {
			continue
		}
		key, n := "nvlink/links", uint64(1)
		if m[1] != "" {
			key = "nvlink/" + m[1]
			var err error
			if n, err = strconv.ParseUint(m[2], 10, 64); err != nil {
				continue
			}
		}
		sum, _ := strconv.ParseUint(gpu[key], 10, 64) //nolint:errcheck // there is none yet
		gpu[key] = strconv.FormatUint(sum+n, 10)
	}
}
