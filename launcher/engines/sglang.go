package engines

import "slices"

type sglang struct{}

func (sglang) name() string { return SGLang }

func (sglang) command(base string, _ []string) bool {
	return base == "sglang" || base == "sglang.launch_server"
}

// Other modules of the package, such as its benchmarks, refuse the flag that adjust adds.
func (sglang) module(name string) bool { return name == "sglang" || name == "sglang.launch_server" }

func (sglang) adjust(argv []string, own arguments) []string {
	return withFlag(argv, own, "--enable-metrics")
}

func (sglang) page(own arguments, _ variables) page { return pythonServerPage(own, 30000, "") }

// withFlag returns argv with the flag as its last word, unless the engine has it already.
func withFlag(argv []string, own arguments, flag string) []string {
	if own.has(flag) {
		return argv
	}
	return append(slices.Clip(argv), flag)
}
