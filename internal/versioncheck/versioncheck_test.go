package versioncheck

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNotice(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		notice     bool
		fails      bool
	}{
		{"newer minor", `{"latest_version": "1.3.0"}`, 200, true, false},
		{"newer major", `{"latest_version": "2.0"}`, 200, true, false},
		{"release candidate of a newer minor", `{"latest_version": " 1.10.0rc1 "}`, 200, true, false},
		{"local version part", `{"latest_version": "1.10.0+cu12"}`, 200, true, false},
		{"newer patch only", `{"latest_version": "1.2.9"}`, 200, false, false},
		{"equal", `{"latest_version": "1.2.0"}`, 200, false, false},
		{"older", `{"latest_version": "0.9.0"}`, 200, false, false},
		{"nothing to say", `{"latest_version": null}`, 200, false, false},
		{"key missing", `{}`, 200, false, false},
		{"unreadable", `{"latest_version": "1.3rc1"}`, 200, false, true},
		{"letter first", `{"latest_version": "v1.3.0"}`, 200, false, true},
		{"escape sequence", `{"latest_version": "1.3.\u001b[2J"}`, 200, false, true},
		{"sentence", `{"latest_version": "1.3.0 is out"}`, 200, false, true},
		{"long", `{"latest_version": "1.3.` + strings.Repeat("0", 100) + `"}`, 200, false, true},
		{"word", `{"latest_version": "latest"}`, 200, false, true},
		{"number", `{"latest_version": 7}`, 200, false, true},
		{"no object", `[]`, 200, false, true},
		{"no JSON", `<html>`, 200, false, true},
		{"endless", `{"latest_version": "` + strings.Repeat("9", 1<<20) + `"}`, 200, false, true},
		{"status", `{"latest_version": "1.3.0"}`, 500, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/version_check" || r.URL.Query().Get("version") != "1.2.0" || r.Header.Get("X-API-Key") != "" {
					t.Errorf("request is %s %v", r.URL, r.Header)
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			notice, err := Notice(t.Context(), server.Client(), server.URL+"//", "1.2.0")
			if (err != nil) != tc.fails {
				t.Errorf("error is %v", err)
			}
			if (notice != "") != tc.notice {
				t.Errorf("notice is %q", notice)
			}
		})
	}
}

// FuzzNotice: a reply gives one short printable sentence about a newer release, or none.
func FuzzNotice(f *testing.F) {
	for _, seed := range []string{
		`{"latest_version":"1.3.0"}`, `{"latest_version":" 2.0 "}`, `{"latest_version":null}`, `{"latest_version":"1.2.9\u0007"}`, `[]`,
		`{"latest_version":"1.99999999999999999999.0"}`, `{"LATEST_VERSION":"7.1.2rc1+a"}`, `{"latest_version":"1.3.0"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := notice(bytes.NewReader(body), "1.2.0")
		if err != nil && text != "" {
			t.Fatalf("%q and %v", text, err)
		}
		if text == "" {
			return
		}
		if len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q", text)
		}
		var major, minor int
		if _, err := fmt.Sscanf(text, "version %d.%d", &major, &minor); err != nil || major < 1 || major == 1 && minor <= 2 {
			t.Fatalf("%q", text)
		}
	})
}
