package enginereceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/graphsignal/graphsignal-collector/internal/collect"
)

func TestConfigFromYAML(t *testing.T) {
	conf, err := confmaptest.LoadConf("testdata/config.yaml")
	require.NoError(t, err)
	for name, want := range map[string]*Config{
		"engine": {
			Config:         collect.Config{Interval: time.Second},
			EndpointConfig: EndpointConfig{Endpoint: "http://127.0.0.1:8000"},
			Timeout:        2 * time.Second, InitialDelay: 2 * time.Second, VerifyOwner: true, ProcFSPath: "/proc", MaxSeries: 4000,
		},
		"engine/all": {
			Config:  collect.Config{Interval: 5 * time.Second},
			Timeout: time.Second, ProcFSPath: "/host/proc", MaxSeries: 100,
			Endpoints: []EndpointConfig{
				{Endpoint: "http://10.0.0.5:8001", MetricsPath: "/prometheus/metrics", Engine: "tensorrt-llm", Tags: map[string]string{"replica": "a"}},
				{
					Endpoint: "https://gpu-07:8002/llm/metrics", Tags: map[string]string{"replica": "b"},
					Headers: configopaque.MapList{{Name: "Authorization", Value: "Bearer secret"}},
					TLS:     configtls.ClientConfig{InsecureSkipVerify: true},
				},
			},
		},
	} {
		sub, err := conf.Sub(name)
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		assert.Equal(t, want, cfg, name)
		assert.NoError(t, confmap.Validate(cfg))
	}
}

func TestConfigErrors(t *testing.T) {
	assert.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	valid := func() *Config {
		cfg := createDefaultConfig().(*Config)
		cfg.Endpoint = "127.0.0.1:8000"
		return cfg
	}
	require.NoError(t, valid().Validate())
	for want, breakIt := range map[string]func(*Config){
		"collection_interval":           func(c *Config) { c.Interval = 0 },
		"endpoint must not be empty":    func(c *Config) { c.Endpoint = "" },
		"either endpoint or endpoints":  func(c *Config) { c.Endpoints = []EndpointConfig{{Endpoint: "a:1"}} },
		"must be an http or https":      func(c *Config) { c.Endpoint = "unix:///run/e.sock" },
		"must name a host":              func(c *Config) { c.Endpoint = "http://:8000" },
		"must not hold credentials":     func(c *Config) { c.Endpoint = "http://user:secret@h:8000" },
		"must not have a fragment":      func(c *Config) { c.Endpoint = "http://h/#x" },
		"port must be 1 to 65535":       func(c *Config) { c.Endpoint = "h:70000" },
		"is no URL":                     func(c *Config) { c.Endpoint = "http://h:80%zz/" },
		"other_ports: 70000":            func(c *Config) { c.OtherPorts = []int{8001, 70000} },
		"tags: a key":                   func(c *Config) { c.Tags = map[string]string{"": "x"} },
		`engine: "triton" is not known`: func(c *Config) { c.Engine = "triton" },
		"timeout":                       func(c *Config) { c.Timeout = 0 },
		"initial_delay":                 func(c *Config) { c.InitialDelay = -1 },
		"procfs_path":                   func(c *Config) { c.ProcFSPath = "" },
		"max_series":                    func(c *Config) { c.MaxSeries = 0 },
		"endpoints[1]: endpoint": func(c *Config) {
			c.Endpoint = ""
			c.Endpoints = []EndpointConfig{{Endpoint: "a:1"}, {Endpoint: "ftp://b", Tags: map[string]string{"a": "b"}}}
		},
		"endpoints[1] has the tags of endpoints[0]": func(c *Config) {
			c.Endpoint = ""
			c.Endpoints = []EndpointConfig{{Endpoint: "a:1"}, {Endpoint: "b:1"}}
		},
	} {
		cfg := valid()
		breakIt(cfg)
		err := cfg.Validate()
		assert.ErrorContains(t, err, want)
		if err != nil {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestURL(t *testing.T) {
	for _, c := range []struct{ endpoint, path, want string }{
		{"127.0.0.1:8000", "", "http://127.0.0.1:8000/metrics"},
		{"http://h:1/", "", "http://h:1/metrics"},
		{"http://h:1/a/b", "", "http://h:1/a/b"},
		{"http://h:1/a/b", "c", "http://h:1/c"},
		{"http://h:1?name=x", "/c/", "http://h:1/c/?name=x"},
		{"https://[::1]:8443", "", "https://[::1]:8443/metrics"},
	} {
		e := EndpointConfig{Endpoint: c.endpoint, MetricsPath: c.path}
		u, err := e.url()
		require.NoError(t, err)
		assert.Equal(t, c.want, u.String())
	}
}
