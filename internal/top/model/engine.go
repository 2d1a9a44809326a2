package model

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
)

// engineSpec names an engine's metrics as /signals carries them: counters without _total. Of alternatives, the first that
// is there counts.
type engineSpec struct {
	name                 string
	mark                 string // prefix of its metrics
	running, waiting     []string
	kvUse                []string // 0 to 1
	prompt, generated    []string // counters of tokens
	finished             []string // counter of requests
	preempted            []string // counter
	generationThroughput []string // gauge, tokens/s, where the engine has one of its own
	latencies            []latencySpec
}

type latencySpec struct {
	label string
	names []string // histograms, seconds
}

var engines = []engineSpec{
	{
		name: "vLLM", mark: "vllm:",
		running: []string{"vllm:num_requests_running"}, waiting: []string{"vllm:num_requests_waiting"},
		kvUse:  []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
		prompt: []string{"vllm:prompt_tokens"}, generated: []string{"vllm:generation_tokens"},
		finished: []string{"vllm:request_success"}, preempted: []string{"vllm:num_preemptions"},
		latencies: []latencySpec{
			{"TTFT", []string{"vllm:time_to_first_token_seconds"}},
			{"TPOT", []string{"vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"}},
			{"E2E", []string{"vllm:e2e_request_latency_seconds"}},
			{"queue", []string{"vllm:request_queue_time_seconds"}},
		},
	},
	{
		name: "SGLang", mark: "sglang:",
		running: []string{"sglang:num_running_reqs"}, waiting: []string{"sglang:num_queue_reqs"},
		kvUse:  []string{"sglang:token_usage"},
		prompt: []string{"sglang:prompt_tokens"}, generated: []string{"sglang:generation_tokens"},
		finished: []string{"sglang:num_requests"}, preempted: []string{"sglang:num_retracted_requests"},
		generationThroughput: []string{"sglang:gen_throughput"},
		latencies: []latencySpec{
			{"TTFT", []string{"sglang:time_to_first_token_seconds"}},
			{"TPOT", []string{"sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"}},
			{"E2E", []string{"sglang:e2e_request_latency_seconds"}},
			{"queue", []string{"sglang:queue_time_seconds"}},
		},
	},
	{
		name: "TensorRT-LLM", mark: "trtllm_",
		running: []string{"trtllm_num_requests_running"}, waiting: []string{"trtllm_num_requests_waiting"},
		kvUse:  []string{"trtllm_kv_cache_utilization"},
		prompt: []string{"trtllm_prompt_tokens"}, generated: []string{"trtllm_generation_tokens"},
		finished: []string{"trtllm_request_success"},
		latencies: []latencySpec{
			{"TTFT", []string{"trtllm_time_to_first_token_seconds"}},
			{"TPOT", []string{"trtllm_time_per_output_token_seconds"}},
			{"E2E", []string{"trtllm_e2e_request_latency_seconds"}},
			{"queue", []string{"trtllm_request_queue_time_seconds"}},
		},
	},
	{
		name: "llama.cpp", mark: "llamacpp:",
		running: []string{"llamacpp:requests_processing"}, waiting: []string{"llamacpp:requests_deferred"},
		kvUse:  []string{"llamacpp:kv_cache_usage_ratio"},
		prompt: []string{"llamacpp:prompt_tokens"}, generated: []string{"llamacpp:tokens_predicted"},
		generationThroughput: []string{"llamacpp:predicted_tokens_seconds"},
		latencies: []latencySpec{
			{"TTFT", nil},
			{"TPOT", nil},
			{"E2E", nil},
		},
	},
}

// engineSeries are the names of all cumulative metrics above.
var engineSeries = map[string]bool{}

func init() {
	for _, e := range engines {
		for _, list := range [][]string{e.prompt, e.generated, e.finished, e.preempted} {
			for _, n := range list {
				engineSeries[n] = true
			}
		}
		for _, l := range e.latencies {
			for _, n := range l.names {
				engineSeries[n] = true
			}
		}
	}
}

// Engine is what one inference engine says of itself.
type Engine struct {
	Name                  string
	Age                   time.Duration // since its page was last read
	Running, Waiting      Value
	KVUse                 Value // 0 to 1, the greatest over data-parallel engines
	PromptRate, TokenRate Value // tokens/s in the window
	PromptTotal           Value
	TokenTotal            Value
	FinishedRate          Value // requests/s in the window
	FinishedTotal         Value
	PreemptedTotal        Value
	OwnThroughput         Value // the engine's own gauge, tokens/s
	Trend                 []float64
	Latencies             []Latency
}

// Latency describes one latency histogram, in seconds. The quantiles are those of the whole run that /signals carries.
type Latency struct {
	Label      string
	P50, P95   Value
	Mean       Value // over the whole run
	WindowMean Value // of the observations in the window
	Count      Value
	Series     int // over how many series the quantiles are the greatest
}

// pick returns the series of the first name that is there, without the duplicates that ranks and priorities make.
func (e *engineSpec) pick(doc *endpoint.Document, kind endpoint.Type, names []string) []*endpoint.Metric {
	for _, name := range names {
		var list []*endpoint.Metric
		i, _ := slices.BinarySearchFunc(doc.Metrics, name, func(m endpoint.Metric, name string) int { return compare(m.Name, name) })
		if i == len(doc.Metrics) || doc.Metrics[i].Name != name {
			continue
		}
		for ; i < len(doc.Metrics) && doc.Metrics[i].Name == name; i++ {
			if doc.Metrics[i].Type == kind {
				list = append(list, &doc.Metrics[i])
			}
		}
		if len(list) > 0 {
			return firstRanks(list)
		}
	}
	return nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// rankTags number shards of one model replica; every shard reports the replica's totals.
var rankTags = []string{"tp_rank", "pp_rank", "moe_ep_rank"}

// firstRanks keeps of each data-parallel replica the series of its lowest rank, and where requests have priorities the
// series over all of them.
func firstRanks(list []*endpoint.Metric) []*endpoint.Metric {
	best := make(map[string]*endpoint.Metric)
	var order []string
	overall := make(map[string]bool)
	for _, m := range list {
		group := replica(m.Tags)
		if hasTag(m.Tags, "priority") && m.Tags.Get("priority") == "" {
			overall[group] = true
		}
	}
	for _, m := range list {
		group := replica(m.Tags)
		if p := m.Tags.Get("priority"); p != "" {
			if overall[group] {
				continue
			}
			group += p
		}
		if b, ok := best[group]; !ok {
			order = append(order, group)
			best[group] = m
		} else if lowerRank(m.Tags, b.Tags) {
			best[group] = m
		}
	}
	out := make([]*endpoint.Metric, 0, len(order))
	for _, g := range order {
		out = append(out, best[g])
	}
	return out
}

func hasTag(tags endpoint.Tags, key string) bool {
	return slices.ContainsFunc(tags, func(t endpoint.Tag) bool { return t.Key == key })
}

// replica is a series' tags without ranks and priority.
func replica(tags endpoint.Tags) string {
	var rest endpoint.Tags
	for _, t := range tags {
		if t.Key != "priority" && !slices.Contains(rankTags, t.Key) {
			rest = append(rest, t)
		}
	}
	return rest.String()
}

func lowerRank(a, b endpoint.Tags) bool {
	for _, key := range rankTags {
		x, errX := strconv.Atoi(a.Get(key))
		y, errY := strconv.Atoi(b.Get(key))
		if errX != nil || errY != nil || x == y {
			continue
		}
		return x < y
	}
	return false
}

func (h *History) engineViews(base, last *read, span Span) []Engine {
	doc := h.last
	var out []Engine
	for i := range engines {
		e := &engines[i]
		at, _ := slices.BinarySearchFunc(doc.Metrics, e.mark, func(m endpoint.Metric, mark string) int { return compare(m.Name, mark) })
		if at == len(doc.Metrics) || len(doc.Metrics[at].Name) < len(e.mark) || doc.Metrics[at].Name[:len(e.mark)] != e.mark {
			continue
		}
		var newest int64
		for ; at < len(doc.Metrics) && len(doc.Metrics[at].Name) >= len(e.mark) && doc.Metrics[at].Name[:len(e.mark)] == e.mark; at++ {
			newest = max(newest, doc.Metrics[at].UpdatedNS)
		}
		v := Engine{Name: e.name, Trend: slices.Clone(h.trends["tokens\x00"+e.name])}
		if newest > 0 && doc.PayloadNS > newest {
			v.Age = time.Duration(doc.PayloadNS - newest)
		}
		v.Running = sum(e.pick(doc, endpoint.Gauge, e.running))
		v.Waiting = sum(e.pick(doc, endpoint.Gauge, e.waiting))
		v.KVUse = greatest(e.pick(doc, endpoint.Gauge, e.kvUse), func(m *endpoint.Metric) endpoint.Number { return m.Value })
		v.OwnThroughput = sum(e.pick(doc, endpoint.Gauge, e.generationThroughput))
		v.PromptTotal, v.PromptRate = counterRate(e.pick(doc, endpoint.Counter, e.prompt), base, last, span)
		v.TokenTotal, v.TokenRate = counterRate(e.pick(doc, endpoint.Counter, e.generated), base, last, span)
		v.FinishedTotal, v.FinishedRate = counterRate(e.pick(doc, endpoint.Counter, e.finished), base, last, span)
		v.PreemptedTotal, _ = counterRate(e.pick(doc, endpoint.Counter, e.preempted), base, last, span)
		for _, l := range e.latencies {
			v.Latencies = append(v.Latencies, latency(l.label, e.pick(doc, endpoint.Histogram, l.names), base, last))
		}
		out = append(out, v)
	}
	return out
}

func sum(list []*endpoint.Metric) Value {
	var v Value
	for _, m := range list {
		if m.Value.Present() {
			v = known(v.V + m.Value.Float())
		}
	}
	return v
}

func greatest(list []*endpoint.Metric, of func(*endpoint.Metric) endpoint.Number) Value {
	var v Value
	for _, m := range list {
		if n := of(m); n.Present() && (!v.OK || n.Float() > v.V) {
			v = known(n.Float())
		}
	}
	return v
}

func seriesKey(m *endpoint.Metric) string {
	return m.Name + "\x00" + string(m.Type) + "\x00" + m.Tags.String()
}

// counterRate adds up counters and their growth per second between the reads.
func counterRate(list []*endpoint.Metric, base, last *read, span Span) (total, rate Value) {
	for _, m := range list {
		total = known(total.V + m.Value.Float())
		if base == nil {
			continue
		}
		key := seriesKey(m)
		now, before := last.series[key], base.series[key]
		if now == nil {
			continue
		}
		start := endpoint.Whole(0) // a series that appeared inside the window counts from 0
		if before != nil {
			start = before.total
		}
		if grown, ok := now.total.Growth(start); ok {
			rate = known(rate.V + grown/elapsed(before, now, base, last, span).Seconds())
		}
	}
	return total, rate
}

func latency(label string, list []*endpoint.Metric, base, last *read) Latency {
	l := Latency{Label: label, Series: len(list)}
	l.P50 = greatest(list, func(m *endpoint.Metric) endpoint.Number { return m.Stats.P50 })
	l.P95 = greatest(list, func(m *endpoint.Metric) endpoint.Number { return m.Stats.P95 })
	var total, count, grownSum, grownCount float64
	for _, m := range list {
		if !m.Stats.Count.Present() || !m.Stats.Sum.Present() {
			continue
		}
		count += m.Stats.Count.Float()
		total += m.Stats.Sum.Float()
		l.Count = known(count)
		if base == nil {
			continue
		}
		key := seriesKey(m)
		if now := last.series[key]; now != nil {
			startCount, startSum := endpoint.Whole(0), endpoint.Whole(0)
			if before := base.series[key]; before != nil {
				startCount, startSum = before.count, before.sum
			}
			c, okCount := now.count.Growth(startCount)
			s, okSum := now.sum.Growth(startSum)
			if okCount && okSum {
				grownCount += c
				grownSum += s
			}
		}
	}
	if count > 0 {
		l.Mean = finite(total / count)
	}
	if grownCount > 0 {
		l.WindowMean = finite(grownSum / grownCount)
	}
	return l
}

func finite(v float64) Value {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Value{}
	}
	return known(v)
}
