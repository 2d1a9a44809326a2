package enginepages

import (
	"fmt"
	"math"
)

// sglang is the page of an SGLang server of two data-parallel groups with two tensor-parallel ranks each. Its processes
// share the counters through files, so that neither creation times nor a process' own figures are there.
func sglang(step float64) []byte {
	p := &page{step: step, number: python}
	const model = `engine_type="unified",model_name="acme/tiny-8b-instruct"`
	var ranks, leaders []labels
	for dp := range 2 {
		for tp := range 2 {
			l := labels(fmt.Sprintf(`dp_rank="%d",%s,moe_ep_rank="0",pp_rank="0",tp_rank="%d"`, dp, model, tp))
			ranks = append(ranks, l)
			if tp == 0 {
				leaders = append(leaders, l)
			}
		}
	}
	perGroup := func(value func(dp float64) float64) func(int) float64 {
		return func(i int) float64 { return value(float64(i / 2)) }
	}
	gauge := func(name, help string, value func(dp float64) float64) { p.gauge(name, help, ranks, perGroup(value)) }
	gauge("sglang:num_running_reqs", "Requests being computed.", func(dp float64) float64 { return math.Floor(p.wave(0, 48, dp)) })
	gauge("sglang:num_used_tokens", "Tokens in the pool.", func(dp float64) float64 { return math.Floor(p.wave(900, 240000, dp)) })
	gauge("sglang:token_usage", "Share of the pool in use.", func(dp float64) float64 { return p.wave(0.01, 0.9, dp) })
	gauge("sglang:gen_throughput", "Tokens a second.", func(dp float64) float64 { return p.wave(100, 2400, dp) })
	gauge("sglang:num_queue_reqs", "Requests in the queue.", func(dp float64) float64 { return math.Floor(p.wave(0, 9, dp)) })
	gauge("sglang:num_retracted_reqs", "Requests put back just now.", func(float64) float64 { return 0 })
	gauge("sglang:cache_hit_rate", "Share of tokens found in the cache.", func(dp float64) float64 { return p.wave(0.2, 0.8, dp) })
	gauge("sglang:spec_accept_length", "Tokens kept of a draft.", func(dp float64) float64 { return p.wave(1, 3.4, dp) })
	gauge("sglang:spec_accept_rate", "Share of drafted tokens kept.", func(dp float64) float64 { return p.wave(0.3, 0.8, dp) })
	gauge("sglang:max_total_num_tokens", "Tokens the pool holds.", func(float64) float64 { return 261888 })
	gauge("sglang:utilization", "How busy it is.", func(dp float64) float64 { return p.wave(0, 1, dp) })
	gauge("sglang:is_cuda_graph", "Graph replay in use.", func(float64) float64 { return 1 })
	p.family("sglang:routing_key_running_req_count", "gauge", "Running requests of a routing key, by count between two bounds.")
	for _, l := range leaders {
		p.sample("sglang:routing_key_running_req_count", l.with(`gt="0",le="8"`), 3)
		p.sample("sglang:routing_key_running_req_count", l.with(`gt="8",le="64"`), 1)
	}

	one := []labels{model}
	workers := func(name, help string, rate float64) {
		p.counter(name, help, withEach(one, "pid", "4101", "4102"), func(i int) float64 { return rate * float64(i+1) })
	}
	workers("sglang:prompt_tokens_total", "Prompt tokens.", 4800)
	workers("sglang:generation_tokens_total", "Generated tokens.", 2300)
	workers("sglang:cached_tokens_total", "Prompt tokens from the cache.", 1700)
	workers("sglang:num_requests_total", "Requests.", 7)
	workers("sglang:num_aborted_requests_total", "Requests given up.", 0.1)
	p.counter("sglang:num_retracted_requests_total", "Requests put back.", leaders, func(int) float64 { return 0.05 })
	stages := withEach(leaders, "stage", "prefill_waiting", "prefill_forward", "decode_waiting")
	p.histogram("sglang:per_stage_req_latency_seconds", "Time of a stage.", stages,
		[]float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}, 0.4, 7)
	p.histogram("sglang:queue_time_seconds", "Time in the queue.", leaders,
		[]float64{.001, .005, .01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 2, 5, 10, 30, 60, 120, 600}, 0.1, 7)
	p.histogram("sglang:time_to_first_token_seconds", "Time to the first token.", one,
		[]float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}, 0.1, 21)
	p.histogram("sglang:inter_token_latency_seconds", "Time between two tokens.", one,
		[]float64{.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8}, 0.3, 6900)
	p.histogram("sglang:e2e_request_latency_seconds", "Time of a request.", one,
		[]float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400}, 0.4, 21)
	return p.Bytes()
}
