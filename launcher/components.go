package launcher

import "github.com/graphsignal/graphsignal-collector/launcher/engines"

// receiver is one of the sidecar's receivers.
type receiver struct {
	kind          string
	metrics, logs bool
	// config returns the receiver's configuration, or false where this run has no use for the receiver.
	config func(in *renderInput) (object, bool)
}

// receivers lists what the sidecar receives, in the order of its pipelines.
var receivers = []receiver{
	{kind: "cupti", metrics: true, logs: true, config: sharedMemoryConfig},
	{kind: "probe", metrics: true, logs: true, config: sharedMemoryConfig},
	{kind: "process", metrics: true, config: processConfig},
	{kind: "nvml", metrics: true, logs: true, config: noConfig},
	{kind: "amdsmi", metrics: true, config: noConfig},
	{kind: "engine", metrics: true, config: engineConfig},
	{kind: "console", logs: true, config: consoleConfig},
}

func sharedMemoryConfig(in *renderInput) (object, bool) {
	config := object{}
	if in.shmPath != "" {
		config["shm_path"] = in.shmPath
	}
	return config, true
}

// noConfig is for a receiver that finds by itself what there is.
func noConfig(*renderInput) (object, bool) { return object{}, true }

func processConfig(in *renderInput) (object, bool) {
	return in.withProcFS(object{}), true
}

func engineConfig(in *renderInput) (object, bool) {
	if in.endpoint == nil {
		return nil, false
	}
	config := object{"endpoint": in.endpoint.BaseURL(), "metrics_path": in.endpoint.Path}
	if in.engine != engines.Generic {
		config["engine"] = in.engine
	}
	if others := in.endpoint.OtherPorts; len(others) > 0 {
		config["other_ports"] = others
	}
	if in.endpoint.Explicit {
		// The user says where the page is; the process that serves it need not be of the workload.
		config["verify_owner"] = false
	}
	return in.withProcFS(config), true
}

func consoleConfig(in *renderInput) (object, bool) {
	if in.console == "" {
		return nil, false
	}
	return in.withProcFS(object{"directory": in.console, "pid": in.pid}), true
}

// withProcFS adds the process table where it is overridden.
func (in *renderInput) withProcFS(config object) object {
	if in.procfsPath != "" {
		config["procfs_path"] = in.procfsPath
	}
	return config
}

// renderInput is what the sidecar's configuration depends on.
type renderInput struct {
	options options
	// pid and startTime (epoch ns) are those of the workload.
	pid       int
	startTime int64
	// commandLine is the workload's, redacted.
	commandLine []string
	tags        map[string]string
	// engine is the engine's name, endpoint its Prometheus page or nil.
	engine   string
	endpoint *engines.Endpoint
	// console is the directory of the console's capture, empty where there is none.
	console string
	// controlFD is the descriptor in the sidecar of its end of the control channel.
	controlFD int
	// shmPath and procfsPath are empty unless overridden.
	shmPath, procfsPath string
	upload              uploadInput
	// versionCheck is the base URL of the version check, or empty.
	versionCheck string
	// otlpEndpoint is the URL of the tee, or empty.
	otlpEndpoint string
	// nested says that an outer launcher's sidecar reads, and removes, the run directories too.
	nested bool
	// runID is in the environment of the workload's processes, or empty.
	runID string
}
