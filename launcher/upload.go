package launcher

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/graphsignal/graphsignal-collector/internal/apikey"
)

const (
	apiKeyVariable     = "GRAPHSIGNAL_API_KEY"
	apiKeyFileVariable = "GRAPHSIGNAL_API_KEY_FILE"
	apiBaseVariable    = "GRAPHSIGNAL_API_BASE"
	defaultAPIBase     = "https://api.graphsignal.com"
)

// uploadInput says whether and where to upload. The key itself is never here: the sidecar reads it from its
// environment or from the file.
type uploadInput struct {
	base             string
	keyInEnvironment bool
	keyFile          string
}

// uploadFrom reads the variables of the upload. A key in the environment wins over a file. An error says why there is
// no upload although a key was given; it must not cost the rest of the profile.
func uploadFrom(env *environment) (uploadInput, error) {
	in := uploadInput{base: defaultAPIBase}
	if base, _ := env.get(apiBaseVariable); base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
			return in, fmt.Errorf("%s: want http://HOST or https://HOST", apiBaseVariable)
		}
		in.base = strings.TrimRight(base, "/")
	}
	if key, _ := env.get(apiKeyVariable); key != "" {
		if _, err := apikey.Clean(key); err != nil {
			return in, fmt.Errorf("%s: %w", apiKeyVariable, err)
		}
		in.keyInEnvironment = true
		return in, nil
	}
	file, _ := env.get(apiKeyFileVariable)
	if file == "" {
		return in, nil
	}
	path, err := filepath.Abs(file)
	if err == nil {
		_, err = apikey.ReadFile(path) // as the sidecar will, which would end at an error
	}
	if err != nil {
		return in, fmt.Errorf("%s: %w", apiKeyFileVariable, err)
	}
	in.keyFile = path
	return in, nil
}

func (u uploadInput) enabled() bool { return u.keyInEnvironment || u.keyFile != "" }

// versionCheckBase is where to ask for a newer release, or empty when that is switched off.
func versionCheckBase(env *environment, upload uploadInput) string {
	switch off, _ := env.get("GRAPHSIGNAL_DISABLE_VERSION_CHECK"); strings.ToLower(off) {
	case "1", "true", "yes":
		return ""
	}
	return upload.base
}

// exporter is the configuration of the upload, where key stands for the reference to the key's variable.
func (u uploadInput) exporter(tags map[string]string, key string) object {
	config := object{"endpoint": u.base, "tags": tags}
	if u.keyInEnvironment {
		config["api_key"] = key
	} else {
		config["api_key_file"] = u.keyFile
	}
	return config
}

// keyPlaceholder returns a text that stands nowhere else in the configuration.
func keyPlaceholder() string { return rand.Text() + rand.Text() }

// withKeyReference puts the reference to the key's variable in the placeholder's place. It is no literal, so its dollar
// sign stays single.
func withKeyReference(config []byte, placeholder string) []byte {
	return bytes.ReplaceAll(config, []byte(placeholder), []byte("${env:"+apiKeyVariable+"}"))
}
