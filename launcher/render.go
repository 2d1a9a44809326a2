package launcher

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// object is a mapping of the configuration.
type object = map[string]any

// renderConfig returns the sidecar's Collector configuration as JSON, which every YAML reader reads.
func renderConfig(in *renderInput) ([]byte, error) {
	workload := object{
		"pid":                  in.pid,
		"control_fd":           in.controlFD,
		"command_line":         in.commandLine,
		"start_time_unix_nano": in.startTime,
	}
	if in.shmPath != "" {
		workload["shm_path"] = in.shmPath
	}
	if in.procfsPath != "" {
		workload["procfs_path"] = in.procfsPath
	}

	if in.nested {
		workload["keep_directories"] = true
	}
	if in.runID != "" {
		workload["run_id"] = in.runID
	}
	if in.versionCheck != "" {
		workload["version_check"] = in.versionCheck
	}

	received := object{}
	var metrics, logs []string
	for _, r := range receivers {
		config, used := r.config(in)
		if !used {
			continue
		}
		received[r.kind] = config
		if r.metrics {
			metrics = append(metrics, r.kind)
		}
		if r.logs {
			logs = append(logs, r.kind)
		}
	}

	signals := object{
		"endpoint": hostPort(in.options.listenHost, in.options.listenPort),
		"tags":     in.tags,
	}
	if in.options.output != "" {
		signals["output"] = in.options.output
	}
	exporters := object{"signals": signals}
	exported := []string{"signals"}
	placeholder := keyPlaceholder()
	if in.upload.enabled() {
		exporters["graphsignal"] = in.upload.exporter(in.tags, placeholder)
		exported = append(exported, "graphsignal")
	}
	pipelines := object{
		"metrics": object{"receivers": metrics, "exporters": exported},
		"logs":    object{"receivers": logs, "exporters": exported},
	}
	config := object{
		"extensions": object{"workload": workload},
		"receivers":  received,
		"exporters":  exporters,
	}
	// User configurations may put it into pipelines of their own.
	config["processors"] = object{"resource/context": object{"attributes": contextAttributes(in.tags)}}
	if in.otlpEndpoint != "" {
		kind, exporter, err := otlpExporter(in.otlpEndpoint)
		if err != nil {
			return nil, err
		}
		exporters[kind] = exporter
		tee := func(receivers []string) object {
			return object{"receivers": receivers, "processors": []string{"resource/context"}, "exporters": []string{kind}}
		}
		pipelines["metrics/otlp"] = tee(metrics)
		pipelines["logs/otlp"] = tee(logs)
	}
	level := "error"
	if in.options.debug {
		level = "debug"
	}
	config["service"] = object{
		"extensions": []string{"workload"},
		"pipelines":  pipelines,
		"telemetry":  object{"logs": object{"level": level}},
	}
	rendered, err := marshalLiteral(config)
	return withKeyReference(rendered, placeholder), err
}

// teeQueueBytes bounds what waits for the gateway, of each signal.
const teeQueueBytes = 8 << 20

// otlpExporter returns the exporter of the OTLP tee: gRPC for the port that is registered for it, else HTTP.
func otlpExporter(endpoint string) (kind string, config object, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", nil, fmt.Errorf("GRAPHSIGNAL_OTLP_ENDPOINT: want http://HOST:PORT or https://HOST:PORT")
	}
	config = object{
		"endpoint": strings.TrimRight(endpoint, "/"),
		// A gateway that is away costs this much memory and no more; the oldest data waits, the newest is dropped. Several
		// senders would bring the points of a series out of order afterwards.
		"sending_queue": object{"sizer": "bytes", "queue_size": teeQueueBytes, "num_consumers": 1},
	}
	if u.Port() != "4317" {
		return "otlp_http", config, nil
	}
	if u.Scheme == "http" {
		config["tls"] = object{"insecure": true}
	}
	return "otlp_grpc", config, nil
}

// contextAttributes writes the tags for the resource processor.
func contextAttributes(tags map[string]string) []object {
	keys := make([]string, 0, len(tags))
	for key := range tags {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	attributes := make([]object, 0, len(keys))
	for _, key := range keys {
		attributes = append(attributes, object{"key": key, "value": tags[key], "action": "upsert"})
	}
	return attributes
}

// hostPort joins host and port, with the brackets of an IPv6 address.
func hostPort(host string, port int) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// marshalLiteral writes a value as JSON whose strings a Collector takes literally: a dollar sign is doubled, since a
// single one begins a reference, and the characters that YAML does not allow to stand for themselves are escaped.
func marshalLiteral(value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("sidecar configuration: %w", err)
	}
	out := make([]byte, 0, len(plain)+len(plain)/8)
	for len(plain) > 0 {
		r, size := utf8.DecodeRune(plain)
		switch {
		case r == '$':
			out = append(out, "$$"...)
		case r >= 0x7f && r < 0xa0, r == 0xfeff, r == 0xfffe, r == 0xffff:
			out = append(out, fmt.Sprintf(`\u%04x`, r)...)
		default:
			out = append(out, plain[:size]...)
		}
		plain = plain[size:]
	}
	return out, nil
}
