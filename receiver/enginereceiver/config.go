package enginereceiver

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configtls"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
	"github.com/graphsignal/graphsignal-collector/launcher/engines"
)

// defaultMetricsPath is where the page is unless something else is said.
const defaultMetricsPath = "/metrics"

// Config is the configuration of the engine receiver.
type Config struct {
	collect.Config `mapstructure:",squash"`
	// EndpointConfig is the one page to scrape, unless Endpoints lists several.
	EndpointConfig `mapstructure:",squash"`
	// Endpoints are the pages to scrape. Their tags must differ.
	Endpoints []EndpointConfig `mapstructure:"endpoints"`
	// Timeout is how long one scrape may take, the reading of the page included.
	Timeout time.Duration `mapstructure:"timeout"`
	// InitialDelay is the time from the start to the first scrape.
	InitialDelay time.Duration `mapstructure:"initial_delay"`
	// VerifyOwner says that a page is read only if a process of the workload listens on the port. It has no effect
	// without the workload extension.
	VerifyOwner bool `mapstructure:"verify_owner"`
	// ProcFSPath is the process table in which the owner is looked up.
	ProcFSPath string `mapstructure:"procfs_path"`
	// MaxSeries is the most series taken from one page.
	MaxSeries int `mapstructure:"max_series"`
}

// EndpointConfig is one page.
type EndpointConfig struct {
	// Endpoint is the server's address: http(s)://HOST[:PORT][/PATH], or HOST:PORT.
	Endpoint string `mapstructure:"endpoint"`
	// MetricsPath is the page's path. Empty: that of Endpoint, else /metrics.
	MetricsPath string `mapstructure:"metrics_path"`
	// OtherPorts are ports of the endpoint's host at which the page is instead, if the workload listens there and not at
	// the endpoint's. Without effect where the owner is not looked up.
	OtherPorts []int `mapstructure:"other_ports"`
	// Tags are set on every series of the page.
	Tags map[string]string `mapstructure:"tags"`
	// Engine names the engine (vllm, sglang, tensorrt-llm, llama.cpp), for warnings that name its settings.
	Engine string `mapstructure:"engine"`
	// Headers are sent with every request.
	Headers configopaque.MapList `mapstructure:"headers"`
	// TLS is for an https endpoint.
	TLS configtls.ClientConfig `mapstructure:"tls"`
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	errs := []error{c.Check()}
	switch {
	case c.Endpoint == "" && len(c.Endpoints) == 0:
		errs = append(errs, errors.New("endpoint must not be empty, or endpoints must list some"))
	case c.Endpoint != "" && len(c.Endpoints) > 0:
		errs = append(errs, errors.New("either endpoint or endpoints can be given"))
	case c.Endpoint != "":
		errs = append(errs, c.check())
	}
	for i := range c.Endpoints {
		if err := c.Endpoints[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("endpoints[%d]: %w", i, err))
		}
		for k := range i {
			if maps.Equal(c.Endpoints[i].Tags, c.Endpoints[k].Tags) {
				errs = append(errs, fmt.Errorf("endpoints[%d] has the tags of endpoints[%d]: their series could not be told apart", i, k))
			}
		}
	}
	if c.Timeout <= 0 {
		errs = append(errs, errors.New("timeout must be positive"))
	}
	if c.InitialDelay < 0 {
		errs = append(errs, errors.New("initial_delay must not be negative"))
	}
	if c.ProcFSPath == "" {
		errs = append(errs, errors.New("procfs_path must not be empty"))
	}
	if c.MaxSeries <= 0 {
		errs = append(errs, errors.New("max_series must be positive"))
	}
	return errors.Join(errs...)
}

// pages lists the pages to scrape.
func (c *Config) pages() []*EndpointConfig {
	if c.Endpoint != "" {
		return []*EndpointConfig{&c.EndpointConfig}
	}
	all := make([]*EndpointConfig, len(c.Endpoints))
	for i := range c.Endpoints {
		all[i] = &c.Endpoints[i]
	}
	return all
}

func (e *EndpointConfig) check() error {
	_, err := e.url()
	errs := []error{err}
	if _, ok := e.Tags[""]; ok {
		errs = append(errs, errors.New("tags: a key must not be empty"))
	}
	for _, port := range e.OtherPorts {
		if port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("other_ports: %d is not 1 to 65535", port))
		}
	}
	switch e.Engine {
	case "", engines.VLLM, engines.SGLang, engines.TensorRTLLM, engines.LlamaCPP, engines.Generic:
	default:
		errs = append(errs, fmt.Errorf("engine: %q is not known", e.Engine))
	}
	return errors.Join(errs...)
}

// url returns the address of the page.
func (e *EndpointConfig) url() (*url.URL, error) {
	text := e.Endpoint
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("endpoint is no URL") // without its text, which may hold credentials
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("endpoint must be an http or https address")
	case u.Hostname() == "":
		return nil, errors.New("endpoint must name a host")
	case u.User != nil:
		return nil, errors.New("endpoint must not hold credentials; use headers")
	case u.Fragment != "":
		return nil, errors.New("endpoint must not have a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("endpoint: the port must be 1 to 65535")
		}
	}
	switch {
	case e.MetricsPath != "":
		u.Path, u.RawPath = "/"+strings.TrimLeft(e.MetricsPath, "/"), ""
	case u.Path == "" || u.Path == "/":
		u.Path = defaultMetricsPath
	}
	return u, nil
}
