package signalsexporter

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/confignet"
)

// Config configures the exporter.
type Config struct {
	// ServerConfig is the HTTP server: endpoint, tls, auth and so on.
	confighttp.ServerConfig `mapstructure:",squash"`

	// Tags is the document's "context": tags of everything in it.
	Tags map[string]string `mapstructure:"tags,omitempty"`

	// AllowedHosts are further names that a request's Host header may have where it is checked; "*" allows all.
	AllowedHosts []string `mapstructure:"allowed_hosts,omitempty"`

	// Output is a file that gets the last document when the Collector ends; none when empty.
	Output string `mapstructure:"output,omitempty"`
}

var _ component.Config = (*Config)(nil)

// Validate checks the settings.
func (c *Config) Validate() error {
	if c.NetAddr.Endpoint == "" {
		return errors.New("endpoint must not be empty")
	}
	if err := checkAddress(c.NetAddr); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if _, ok := c.Tags[""]; ok {
		return errors.New("tags: a key must not be empty")
	}
	if err := checkAllowedHosts(c.AllowedHosts); err != nil {
		return err
	}
	if c.Output != "" && (strings.HasSuffix(c.Output, "/") || filepath.Base(c.Output) == "." || filepath.Base(c.Output) == "..") {
		return errors.New("output must name a file")
	}
	return nil
}

// checkAddress refuses what could never be bound. That a host is not known or not ours now is no such thing.
func checkAddress(a confignet.AddrConfig) error {
	if !strings.HasPrefix(string(a.Transport), "tcp") {
		return nil
	}
	_, port, err := net.SplitHostPort(a.Endpoint)
	if err != nil {
		return err
	}
	if _, err := net.LookupPort(string(a.Transport), port); err != nil {
		return fmt.Errorf("address %s: invalid port", a.Endpoint)
	}
	return nil
}
