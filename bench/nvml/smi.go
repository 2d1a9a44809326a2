package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// smiGPU is what `nvidia-smi -q -x` says of one GPU: texts by path, as "utilization/gpu_util".
type smiGPU map[string]string

// querySMI runs nvidia-smi and returns its GPUs by PCI bus id, and the page that says so. What it says of NVLink is added.
func querySMI() (map[string]smiGPU, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-q", "-x").Output()
	if err != nil {
		return nil, nil, err
	}
	gpus, err := parseSMI(bytes.NewReader(out))
	if err == nil {
		queryNVLink(ctx, gpus)
	}
	return gpus, out, err
}

func parseSMI(r io.Reader) (map[string]smiGPU, error) {
	gpus := make(map[string]smiGPU)
	decoder := xml.NewDecoder(r)
	var path []string
	var id string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return gpus, nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
			if t.Name.Local == "gpu" {
				for _, a := range t.Attr {
					if a.Name.Local == "id" {
						id = strings.ToUpper(a.Value)
						gpus[id] = make(smiGPU)
					}
				}
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			if text := strings.TrimSpace(string(t)); text != "" && len(path) > 2 && path[1] == "gpu" && gpus[id] != nil {
				key := strings.Join(path[2:], "/")
				if strings.HasPrefix(key, "processes/process_info/") {
					gpus[id].process(strings.TrimPrefix(key, "processes/process_info/"), text)
					continue
				}
				gpus[id][key] = text
			}
		}
	}
}

// process collects the memory of processes under "process{PID}".
func (g smiGPU) process(field, text string) {
	switch field {
	case "pid":
		g["pid"] = text
	case "used_memory":
		g["process{"+g["pid"]+"}"] = text
	}
}

// number reads the first of the paths that is there: "700.00 W", "16x", "P0", "0x0000000000000001".
func (g smiGPU) number(paths ...string) (float64, bool) {
	for _, p := range paths {
		word, _, _ := strings.Cut(g[p], " ")
		word = strings.TrimPrefix(strings.TrimSuffix(word, "x"), "P")
		if n, err := strconv.ParseUint(word, 0, 64); err == nil {
			return float64(n), true
		}
		if n, err := strconv.ParseFloat(word, 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// reasons is the mask of the throttle reasons that nvidia-smi calls active.
func (g smiGPU) reasons() (float64, bool) {
	bits := []struct {
		bit   uint64
		names []string
	}{
		{0x1, []string{"gpu_idle"}}, {0x2, []string{"applications_clocks_setting"}}, {0x4, []string{"sw_power_cap"}},
		{0x8, []string{"hw_slowdown"}}, {0x10, []string{"sync_boost"}}, {0x20, []string{"sw_thermal_slowdown"}},
		{0x40, []string{"hw_thermal_slowdown"}}, {0x80, []string{"hw_power_brake_slowdown"}}, {0x100, []string{"display_clock_setting", "display_clocks_setting"}},
	}
	var mask uint64
	var found bool
	for _, b := range bits {
		for _, n := range b.names {
			for _, group := range []string{"clocks_event_reasons/clocks_event_reason_", "clocks_throttle_reasons/clocks_throttle_reason_"} {
				text, ok := g[group+n]
				found = found || ok
				if text == "Active" {
					mask |= b.bit
				}
			}
		}
	}
	return float64(mask), found
}
