// Package versioncheck asks once whether a newer release exists.
package versioncheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeout bounds the whole exchange.
const timeout = 3 * time.Second

// Notice asks the server at base whether a release newer than own exists, and returns the sentence to show, or ""
// when there is nothing to say. Every failure is an error for a debug log and nobody else.
func Notice(ctx context.Context, client *http.Client, base, own string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := strings.TrimRight(base, "/") + "/api/v1/version_check?version=" + url.QueryEscape(own)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "", fmt.Errorf("version check: status %d", resp.StatusCode)
	}
	return notice(io.LimitReader(resp.Body, 64<<10), own)
}

// notice makes the sentence from the server's reply.
func notice(body io.Reader, own string) (string, error) {
	var reply struct {
		LatestVersion *string `json:"latest_version"`
	}
	if err := json.NewDecoder(body).Decode(&reply); err != nil {
		return "", fmt.Errorf("version check: %w", err)
	}
	if reply.LatestVersion == nil {
		return "", nil
	}
	latest := strings.TrimSpace(*reply.LatestVersion)
	newer, err := isNewer(latest, own)
	if err != nil || !newer {
		return "", err
	}
	return fmt.Sprintf("version %s is available, this is %s; upgrade with your package manager or from the release page", latest, own), nil
}

// versionForm is major.minor, followed by nothing or a point and more. It is shown to people, so it is short and has
// only what versions are written with.
var versionForm = regexp.MustCompile(`^([0-9]{1,9})\.([0-9]{1,9})(?:\.[0-9A-Za-z.+~-]{0,40})?$`)

// isNewer compares major and minor only.
func isNewer(latest, own string) (bool, error) {
	l, err := parse(latest)
	if err != nil {
		return false, err
	}
	o, err := parse(own)
	if err != nil {
		return false, err
	}
	return l[0] > o[0] || l[0] == o[0] && l[1] > o[1], nil
}

func parse(version string) ([2]int, error) {
	parts := versionForm.FindStringSubmatch(version)
	if parts == nil {
		return [2]int{}, errors.New("version check: unreadable version")
	}
	major, err := strconv.Atoi(parts[1])
	if err != nil {
		return [2]int{}, err
	}
	minor, err := strconv.Atoi(parts[2])
	return [2]int{major, minor}, err
}
