package launcher

import "github.com/graphsignal/graphsignal-collector/launcher/engines"

// receiver is one of the sidecar's receivers.
type receiver struct {
	kind          string
	metrics, logs bool
	// config returns the receiver's configuration, or false where this run has no use for the receiver.
	config func(r *renderInput) (any, bool)
}

// receivers lists what the sidecar receives, in the order of its pipelines.
var receivers = []receiver{
	{kind: "cupti", metrics: true, logs: true, config: always},
	{kind: "probe", metrics: true, logs: true, config: always},
	{kind: "process", metrics: true, config: always},
}

func always(*renderInput) (any, bool) { return struct{}{}, true }

// renderInput is what the sidecar's configuration depends on.
type renderInput struct {
	options options
	// pid and startTime (epoch ns) are those of the workload.
	pid       int
	startTime int64
	// commandLine is the workload's, redacted.
	commandLine []string
	tags        map[string]string
	endpoint    *engines.Endpoint
	// console is the directory of the console's capture, empty where there is none.
	console string
	// controlFD is the descriptor in the sidecar of its end of the control channel.
	controlFD int
	// shmPath and procfsPath are empty unless overridden.
	shmPath, procfsPath string
	// otlpEndpoint is the URL of the tee, or empty.
	otlpEndpoint string
}
