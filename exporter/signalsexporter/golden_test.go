package signalsexporter

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graphsignal/graphsignal-collector/internal/series"
	"github.com/graphsignal/graphsignal-collector/internal/signal"
)

func tag(pairs ...string) []series.Tag {
	var tags []series.Tag
	for i := 0; i < len(pairs); i += 2 {
		tags = append(tags, series.Tag{Key: pairs[i], Value: pairs[i+1]})
	}
	return tags
}

// TestWorkedExample is the whole document of the contract's example, byte for byte except for the line breaks.
func TestWorkedExample(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Tags = map[string]string{"team_name": "Infra", "instance.id": "5f0c9a1be772", "host.name": "gpu-07"}
	})
	const (
		first  = 1789999999999999999
		second = 1790000042000000000
		later  = 1790000042100000000
	)
	r.metrics(func(b *signal.Builder) {
		device := b.Resource(nil, nil)
		device.Gauge("gpu_power_usage_watts", tag("device.uuid", "GPU-0a1b"), series.Float(412.5), 0, later)
		process := b.Resource([]signal.Entity{{
			Kind:       signal.ProcessKind,
			ID:         tag("process.pid", "4242", "process.root_pid", "4242"),
			Attributes: tag("process.command_line", "serve --model m"),
		}}, nil)
		process.NativeHistogram("decode_step_nanoseconds", nil, series.Distribution{
			Bins: []series.Bin{
				{Value: series.Int(96), Count: 3}, {Value: series.Int(112), Count: 9},
				{Value: series.Int(128), Count: 6}, {Value: series.Int(160), Count: 2},
			},
			HasTotals: true, HasMin: true, HasMax: true,
			Count: 20, Sum: series.Int(2384), Min: series.Int(99), Max: series.Int(151),
		}, first, second)
		process.Profile("cuda_kernels_nanoseconds", nil, []series.Frame{
			{Name: "gemm_a", Value: 9100, Samples: 70}, {Name: "softmax", Value: 2300, Samples: 70},
			{Name: "copy", Value: 2300, Samples: 12}, {Name: "noop", Value: 0, Samples: 3},
		}, first, second)
		plain := b.Resource(nil, nil)
		plain.Gauge("queue_depth", nil, series.Int(3), 0, later)
		plain.Counter("queue_depth", nil, series.Int(811), 0, later)
	})
	r.logs(
		signal.ErrorEntry{Level: "error", Message: "engine step failed", Time: 1790000040000000000, Tags: []signal.ErrorTag{
			{Key: "process.pid", Value: "4242"}, {Key: "scope.name", Value: "workload"}, {Key: "stream", Value: "stderr"},
		}},
		signal.ErrorEntry{Level: "info", Message: "warming up"},
	)
	r.clock.set(1790000042500000000)
	resp, body := r.do(http.MethodGet, "/signals")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	want, err := os.ReadFile("testdata/worked-example.json")
	require.NoError(t, err)
	expected := strings.ReplaceAll(strings.Join(strings.Fields(string(want)), " "), "[ {", "[{")
	assert.Equal(t, expected, body)
	assert.True(t, json.Valid([]byte(body)))
}
