package engines

type tensorRTLLM struct{}

func (tensorRTLLM) name() string { return TensorRTLLM }

func (tensorRTLLM) command(base string, _ []string) bool {
	return base == "trtllm-serve" || base == "trtllm" || base == "trtllm-llmapi-launch"
}

func (tensorRTLLM) module(name string) bool { return name == "tensorrt_llm.commands.serve" }

// adjust changes nothing: the setting that enables the metrics is not an argument but a key of the options file.
func (tensorRTLLM) adjust(argv []string, _ arguments) []string { return argv }

func (tensorRTLLM) page(own arguments, _ variables) page {
	host, _ := own.value("--host")
	// /metrics of this engine is a JSON document.
	p := page{host: reachable(host, "localhost"), port: own.port(8000), path: "/prometheus/metrics"}
	if own.has("--grpc") {
		p.warnings = append(p.warnings, "trtllm-serve has no metrics page in gRPC mode (--grpc), so engine metrics will be missing")
	}
	return p
}
