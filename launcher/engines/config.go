package engines

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxConfig is how much of an engine's configuration file is read, in bytes.
const maxConfig = 1 << 20

// serverConfig is what an engine's configuration file says about where it listens and what it counts.
type serverConfig struct {
	host   string
	port   int
	socket bool
	// noStats is vLLM's disable-log-stats.
	noStats bool
	notes   []string
}

// readConfig reads the file that --config names.
func readConfig(own arguments) serverConfig {
	var c serverConfig
	path, ok := own.value("--config")
	if !ok {
		return c
	}
	// A fifo or device would block or never end.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		c.notes = append(c.notes, fmt.Sprintf("the engine's configuration file %q cannot be read", path))
		return c
	}
	file, err := os.Open(path)
	if err != nil {
		c.notes = append(c.notes, fmt.Sprintf("the engine's configuration file cannot be read: %v", err))
		return c
	}
	defer file.Close() //nolint:errcheck // only read
	return parseConfig(file)
}

// parseConfig reads YAML whose top level has one `key: value` a line, the keys being the engine's options without
// dashes. Anything else in it is passed over.
func parseConfig(file io.Reader) serverConfig {
	var c serverConfig
	lines := bufio.NewScanner(io.LimitReader(file, maxConfig))
	lines.Buffer(nil, maxConfig)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if !ok || !strings.HasPrefix(value+" ", " ") {
			continue
		}
		switch value = scalar(value); strings.TrimRight(key, " ") {
		case "port":
			if port, ok := parsePort(value); ok {
				c.port = port
			}
		case "host":
			c.host = value
		case "uds":
			c.socket = value != ""
		case "disable-log-stats", "disable_log_stats":
			c.noStats = strings.EqualFold(value, "true")
		}
	}
	return c
}

// scalar returns the text of a YAML scalar on one line: without quotes, blanks around it and a comment behind it.
func scalar(text string) string {
	text = strings.TrimSpace(text)
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		if end := strings.IndexByte(text[1:], text[0]); end >= 0 {
			return text[1 : 1+end]
		}
	}
	if comment := strings.Index(text, " #"); comment >= 0 {
		text = text[:comment]
	}
	if strings.HasPrefix(text, "#") || text == "null" || text == "~" {
		return ""
	}
	return strings.TrimSpace(text)
}
