package enginepages

import (
	"fmt"
	"math"

	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

var pages = map[string]func(step float64) []byte{
	engines.VLLM:        vllm,
	engines.SGLang:      sglang,
	engines.TensorRTLLM: tensorRTLLM,
	engines.LlamaCPP:    llamaCPP,
}

var (
	firstTokenBounds = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	requestBounds    = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	tokenBounds      = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	lengthBounds     = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	iterationBounds  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	handlerBounds    = []float64{.1, .5, 1}
	finestBounds     = []float64{.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
)

// vllmEngines is the number of data-parallel engines behind the page.
const vllmEngines = 4

// vllm is the page of a data-parallel vLLM (V1) behind one API server.
func vllm(step float64) []byte {
	p := &page{step: step, number: python, created: true}
	p.pythonProcess()
	var each []labels
	for i := range vllmEngines {
		each = append(each, labels(fmt.Sprintf(`engine="%d",model_name="acme/tiny-8b-instruct"`, i)))
	}
	share := func(rate float64) func(int) float64 {
		return func(i int) float64 { return rate * (1 + float64(i)/8) }
	}
	p.gauge("vllm:num_requests_running", "Requests being computed.", each,
		func(i int) float64 { return math.Floor(p.wave(0, 64, float64(i))) })
	p.gauge("vllm:num_requests_waiting", "Requests in the queue.", each,
		func(i int) float64 { return math.Floor(p.wave(0, 12, float64(i))) })
	var reasons []labels
	for _, l := range each {
		for _, reason := range []string{"capacity", "deferred"} {
			reasons = append(reasons, l.with(`reason="`+reason+`"`))
		}
	}
	p.gauge("vllm:num_requests_waiting_by_reason", "Requests in the queue, by what holds them there.", reasons,
		func(i int) float64 { return math.Floor(p.wave(0, 6, float64(i))) })
	p.gauge("vllm:engine_sleep_state", "Which parts are unloaded.", withEach(each, "sleep_state", "awake", "weights_offloaded", "discard_all"),
		func(i int) float64 { return map[bool]float64{true: 1}[i%3 == 0] })
	p.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use.", each,
		func(i int) float64 { return p.wave(0.1, 0.93, float64(i)) })
	p.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", each, share(5200))
	p.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", each, share(1900))
	p.counter("vllm:external_prefix_cache_queries_total", "Tokens looked up in a connected cache.", each, share(0))
	p.counter("vllm:external_prefix_cache_hits_total", "Tokens found in a connected cache.", each, share(0))
	p.counter("vllm:mm_cache_queries_total", "Items looked up in the multi-modal cache.", each, share(0.5))
	p.counter("vllm:mm_cache_hits_total", "Items found in the multi-modal cache.", each, share(0.2))
	p.counter("vllm:num_preemptions_total", "Requests put back.", each, share(0.1))
	p.counter("vllm:prompt_tokens_total", "Prompt tokens.", each, share(5200))
	p.counter("vllm:generation_tokens_total", "Generated tokens.", each, share(2100))
	p.counter("vllm:request_success_total", "Finished requests.",
		withEach(each, "finished_reason", "stop", "length", "abort", "error", "repetition"), share(3))
	p.counter("vllm:spec_decode_num_drafts_total", "Drafts.", each, share(700))
	p.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted.", each, share(2100))
	p.counter("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens kept.", each, share(1300))
	p.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafted tokens kept, by position.",
		withEach(each, "position", "0", "1", "2"), share(400))

	p.histogram("vllm:request_prompt_tokens", "Prompt tokens.", each, lengthBounds, 0.6, 9)
	p.histogram("vllm:request_generation_tokens", "Generated tokens.", each, lengthBounds, 0.5, 9)
	p.histogram("vllm:iteration_tokens_total", "Tokens of a step.", each, iterationBounds, 0.6, 48)
	p.histogram("vllm:request_max_num_generation_tokens", "Most tokens asked for.", each, lengthBounds, 0.6, 9)
	p.histogram("vllm:request_params_n", "Answers asked for.", each, []float64{1, 2, 5, 10, 20}, 0, 9)
	p.histogram("vllm:request_params_max_tokens", "Token limit asked for.", each, lengthBounds, 0.6, 9)
	p.histogram("vllm:time_to_first_token_seconds", "Time to the first token.", each, firstTokenBounds, 0.4, 9)
	p.histogram("vllm:inter_token_latency_seconds", "Time between two tokens.", each, tokenBounds, 0.1, 2100)
	p.histogram("vllm:request_time_per_output_token_seconds", "Time a token, over a request.", each, tokenBounds, 0.1, 9)
	p.histogram("vllm:e2e_request_latency_seconds", "Time of a request.", each, requestBounds, 0.4, 9)
	p.histogram("vllm:request_queue_time_seconds", "Time in the queue.", each, requestBounds, 0, 9)
	p.histogram("vllm:request_inference_time_seconds", "Time computed.", each, requestBounds, 0.4, 9)
	p.histogram("vllm:request_prefill_time_seconds", "Time of the prompt.", each, requestBounds, 0, 9)
	p.histogram("vllm:request_decode_time_seconds", "Time of the generation.", each, requestBounds, 0.4, 9)
	p.gauge("vllm:cache_config_info", "How the cache is set up.", []labels{
		`block_size="16",cache_dtype="auto",calculate_kv_scales="False",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="27741",sliding_window="None",swap_space="4"`,
	}, func(int) float64 { return 1 })
	p.http([]string{"/v1/chat/completions", "/v1/completions", "/health", "/v1/models"})
	return p.Bytes()
}

// withEach returns each label set once for every value of one more label.
func withEach(sets []labels, key string, values ...string) []labels {
	var all []labels
	for _, l := range sets {
		for _, v := range values {
			all = append(all, l.with(key+`="`+v+`"`))
		}
	}
	return all
}

// pythonProcess is what Python's library says of the interpreter and the process.
func (p *page) pythonProcess() {
	generations := []labels{`generation="0"`, `generation="1"`, `generation="2"`}
	p.created = false
	p.counter("python_gc_objects_collected_total", "Objects freed.", generations, func(int) float64 { return 130 })
	p.counter("python_gc_objects_uncollectable_total", "Objects that cannot be freed.", generations, func(int) float64 { return 0 })
	p.counter("python_gc_collections_total", "Collections.", generations, func(int) float64 { return 2 })
	p.gauge("python_info", "The interpreter.",
		[]labels{`implementation="CPython",major="3",minor="12",patchlevel="11",version="3.12.11"`}, func(int) float64 { return 1 })
	p.gauge("process_virtual_memory_bytes", "Address space.", []labels{""}, func(int) float64 { return 3.7183488e+10 })
	p.gauge("process_resident_memory_bytes", "Memory in RAM.", []labels{""}, func(int) float64 { return 1.21856e+09 })
	p.gauge("process_start_time_seconds", "When the process began.", []labels{""}, func(int) float64 { return began })
	p.counter("process_cpu_seconds_total", "Processor time.", []labels{""}, func(int) float64 { return 0.6 })
	p.gauge("process_open_fds", "Open descriptors.", []labels{""}, func(int) float64 { return 91 })
	p.gauge("process_max_fds", "Descriptors allowed.", []labels{""}, func(int) float64 { return 1048576 })
	p.created = true
}

// http is what the instrumentation of a FastAPI server says of its handlers.
func (p *page) http(handlers []string) {
	var requests, each, methods []labels
	for _, handler := range handlers {
		l := labels(`handler="` + handler + `"`)
		each = append(each, l)
		methods = append(methods, l.with(`method="POST"`))
		requests = append(requests, l.with(`method="POST",status="2xx"`), l.with(`method="POST",status="4xx"`))
	}
	p.counter("http_requests_total", "Requests.", requests, func(i int) float64 { return 9 / float64(1+i) })
	p.summary("http_request_size_bytes", "Size of requests.", each, 9, 1422)
	p.summary("http_response_size_bytes", "Size of replies.", each, 9, 2310)
	p.histogram("http_request_duration_highr_seconds", "Duration, fine.", []labels{""}, finestBounds, 0.5, 9)
	p.histogram("http_request_duration_seconds", "Duration, coarse.", methods, handlerBounds, 1, 9)
}
