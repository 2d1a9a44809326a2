package enginepages

import "math"

// tensorRTLLM is the page of trtllm-serve with performance and iteration statistics enabled.
func tensorRTLLM(step float64) []byte {
	p := &page{step: step, number: python, created: true}
	one := []labels{`engine_type="undefined",model_name="undefined"`}
	gauge := func(name string, value float64) {
		p.gauge(name, "Iteration statistics of the engine.", one, func(int) float64 { return value })
	}
	rate := func(perStep float64) func(int) float64 {
		return func(i int) float64 { return perStep / float64(i+1) }
	}
	p.counter("trtllm_request_success_total", "Finished requests.", withEach(one, "finished_reason", "stop", "length"), rate(8))
	p.histogram("trtllm_e2e_request_latency_seconds", "Time of a request.", one, requestBounds, 0.4, 12)
	p.histogram("trtllm_time_to_first_token_seconds", "Time to the first token.", one, firstTokenBounds, 0.4, 12)
	p.histogram("trtllm_time_per_output_token_seconds", "Time a token.", one, tokenBounds, 0.1, 12)
	p.histogram("trtllm_request_queue_time_seconds", "Time in the queue.", one, requestBounds, 0, 12)
	p.histogram("trtllm_request_prefill_time_seconds", "Time of the prompt.", one, requestBounds, 0, 12)
	p.histogram("trtllm_request_decode_time_seconds", "Time of the generation.", one, requestBounds, 0.4, 12)
	p.counter("trtllm_prompt_tokens_total", "Prompt tokens.", one, rate(6100))
	p.counter("trtllm_generation_tokens_total", "Generated tokens.", one, rate(2700))
	p.counter("trtllm_spec_decode_num_draft_tokens_total", "Tokens drafted.", one, rate(900))
	p.counter("trtllm_spec_decode_num_accepted_tokens_total", "Drafted tokens kept.", one, rate(600))
	gauge("trtllm_spec_decode_acceptance_length", p.wave(1, 3, 0))
	gauge("trtllm_num_requests_running", math.Floor(p.wave(0, 64, 0)))
	gauge("trtllm_num_requests_waiting", math.Floor(p.wave(0, 9, 0)))
	gauge("trtllm_num_paused_requests", 0)
	gauge("trtllm_num_context_requests", math.Floor(p.wave(0, 4, 1)))
	gauge("trtllm_num_generation_requests", math.Floor(p.wave(0, 60, 1)))
	gauge("trtllm_kv_cache_hit_rate", p.wave(0.2, 0.7, 2))
	gauge("trtllm_kv_cache_utilization", p.wave(0.1, 0.9, 2))
	gauge("trtllm_kv_cache_max_blocks", 9000)
	gauge("trtllm_kv_cache_free_blocks", math.Floor(p.wave(800, 8000, 2)))
	gauge("trtllm_kv_cache_used_blocks", 9000-math.Floor(p.wave(800, 8000, 2)))
	gauge("trtllm_iteration_latency_seconds", p.wave(0.01, 0.03, 3))
	return p.Bytes()
}

// llamaCPP is the page of llama-server. Before the first request two of its figures are a zero divided by zero.
func llamaCPP(step float64) []byte {
	p := &page{step: step, number: iostream}
	none := []labels{""}
	total := func(name, help string, perStep float64) {
		p.counter("llamacpp:"+name, help, none, func(int) float64 { return perStep })
	}
	gauge := func(name, help string, value float64) {
		p.gauge("llamacpp:"+name, help, none, func(int) float64 { return value })
	}
	total("prompt_tokens_total", "Prompt tokens.", 310)
	total("prompt_tokens_cached_total", "Prompt tokens from the cache.", 120)
	total("prompt_seconds_total", "Seconds spent on prompts.", 1)
	total("tokens_predicted_total", "Generated tokens.", 47)
	total("tokens_predicted_seconds_total", "Seconds spent on generation.", 1)
	total("n_decode_total", "Decode calls.", 40)
	p.counter("llamacpp:n_tokens_max", "Longest sequence so far.", none, func(int) float64 { return 777 / math.Max(step, 1) })
	total("spec_decode_num_drafts_total", "Drafts.", 20)
	total("spec_decode_num_draft_tokens_total", "Tokens drafted.", 60)
	p.counter("llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens kept.",
		[]labels{`position="0"`, `position="1"`, `position="2"`}, func(i int) float64 { return 18 - 5*float64(i) })
	gauge("n_busy_slots_per_decode", "Slots in use a decode call.", 60*step/(40*step))
	gauge("prompt_tokens_seconds", "Prompt tokens a second.", 310*step/step)
	gauge("predicted_tokens_seconds", "Generated tokens a second.", p.wave(30, 60, 0))
	gauge("kv_cache_usage_ratio", "Share of the KV cache in use.", p.wave(0, 1, 0))
	gauge("requests_processing", "Requests being computed.", math.Floor(p.wave(0, 4, 0)))
	gauge("requests_deferred", "Requests in the queue.", math.Floor(p.wave(0, 2, 0)))
	return p.Bytes()
}
