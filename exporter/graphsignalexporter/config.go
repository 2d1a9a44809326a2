package graphsignalexporter

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/graphsignal/graphsignal-collector/internal/apikey"
)

// Config configures the exporter.
type Config struct {
	// ClientConfig is the HTTP client: endpoint (the platform's base URL), proxy_url, tls and so on.
	confighttp.ClientConfig `mapstructure:",squash"`

	// APIKey is the key of the account; APIKeyFile names a file that holds it. One of them is required.
	APIKey     configopaque.String `mapstructure:"api_key"`
	APIKeyFile string              `mapstructure:"api_key_file"`

	// Interval is the time between uploads.
	Interval time.Duration `mapstructure:"upload_interval"`

	// SinceUnixNano is when an earlier Collector that uploaded for the same instance ended: what started before then counts
	// from its first value on. 0 without one.
	SinceUnixNano int64 `mapstructure:"since_unix_nano"`

	// Tags are on everything that is uploaded, under each signal's own.
	Tags map[string]string `mapstructure:"tags,omitempty"`
}

var _ component.Config = (*Config)(nil)

// Validate checks the settings. It does not read the key file, which may come later than the configuration.
func (c *Config) Validate() error {
	base, err := url.Parse(c.Endpoint)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" {
		return fmt.Errorf("endpoint %q is no http or https URL that paths can be put behind", c.Endpoint)
	}
	if c.APIKey == "" && c.APIKeyFile == "" {
		return errors.New("api_key or api_key_file is required")
	}
	if c.APIKey != "" && c.APIKeyFile != "" {
		return errors.New("api_key and api_key_file exclude each other")
	}
	if c.APIKey != "" {
		if _, err := c.key(); err != nil {
			return err
		}
	}
	if c.Interval < 100*time.Millisecond {
		return errors.New("upload_interval must be at least 100ms")
	}
	if _, ok := c.Tags[""]; ok {
		return errors.New("tags: a key must not be empty")
	}
	if c.SinceUnixNano < 0 {
		return errors.New("since_unix_nano must not be negative")
	}
	return nil
}

// key returns the API key, from the file if there is one.
func (c *Config) key() (string, error) {
	if c.APIKeyFile != "" {
		return apikey.ReadFile(c.APIKeyFile)
	}
	key, err := apikey.Clean(string(c.APIKey))
	if err != nil {
		return "", fmt.Errorf("api_key: %w", err)
	}
	return key, nil
}
