// Package ingest is a small stand-in for the platform's side of the upload: it checks every request, adds growth up
// to a view of each instance, and can be told to fail in any way. Tests run it over real HTTP.
package ingest

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	pb "github.com/graphsignal/graphsignal-collector/proto"
)

// Request is one POST as it arrived.
type Request struct {
	Number int
	Header http.Header
	// Size is the length of the body on the wire.
	Size    int
	Message *pb.UploadRequest
}

// Answer is what the server does with a Request. The zero Answer accepts it with status 200.
type Answer struct {
	// Status other than 0 and 2xx refuses the request: nothing is added up.
	Status int
	Header map[string]string
	// Lose adds the request up and then cuts the connection without an answer.
	Lose bool
	// Stall holds the answer back until the client gives up.
	Stall bool
}

// Server is an http.Handler for POST /api/v1/ingest, GET /api/v1/instances and GET /api/v1/signals.
type Server struct {
	// Key is the expected API key.
	Key string
	// Decide picks the answer to a request; nil accepts all.
	Decide func(Request) Answer
	// Forget drops each request once it was answered: only the sums stay. For long runs.
	Forget bool

	mu        sync.Mutex
	requests  []Request
	received  int
	instances map[string]*Instance
	faults    []error
}

// Instance is what the server knows of one run of the profiler.
type Instance struct {
	ID        string
	Series    map[string]*Series
	Logs      []*pb.LogEntry
	Resources map[string]*pb.Resource
}

// Series is one series as accumulated from its growth.
type Series struct {
	Name string
	Type pb.Metric_MetricType
	// Tags are those of the series and the global ones.
	Tags map[string]string

	Value     float64 // gauge: latest; counter: total
	Bins      map[float64]int64
	HasTotals bool
	Count     int64
	Sum       float64
	Min, Max  *float64
	Frames    map[string]Frame
	Updated   int64
}

// Frame is one accumulated row of a profile.
type Frame struct{ Value, Samples uint64 }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/ingest":
		s.ingest(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/instances":
		s.reply(w, r, s.instanceList)
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/signals":
		s.reply(w, r, func() any { return s.signals(r.URL.Query().Get("instance_id")) })
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) ingest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		return
	}
	message, err := decode(r.Header, body)
	if err == nil {
		err = check(message)
	}
	s.mu.Lock()
	if err != nil {
		s.faults = append(s.faults, err)
	}
	request := Request{Number: s.received, Header: r.Header.Clone(), Size: len(body), Message: message}
	s.received++
	if !s.Forget {
		s.requests = append(s.requests, request)
	}
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Header.Get("X-API-Key") != s.Key {
		http.Error(w, "unknown key", http.StatusUnauthorized)
		return
	}
	var answer Answer
	if s.Decide != nil {
		answer = s.Decide(request)
	}
	for key, value := range answer.Header {
		w.Header().Set(key, value)
	}
	switch {
	case answer.Stall:
		<-r.Context().Done()
	case answer.Lose:
		s.accumulate(message)
		panic(http.ErrAbortHandler)
	case answer.Status >= 300:
		w.WriteHeader(answer.Status)
	default:
		s.accumulate(message)
		w.WriteHeader(max(answer.Status, http.StatusOK))
	}
}

func decode(header http.Header, body []byte) (*pb.UploadRequest, error) {
	if t := header.Get("Content-Type"); t != "application/octet-stream" {
		return nil, fmt.Errorf("content type %q", t)
	}
	if e := header.Get("Content-Encoding"); e != "gzip" {
		return nil, fmt.Errorf("content encoding %q", e)
	}
	reader, err := gzip.NewReader(strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	var message pb.UploadRequest
	return &message, proto.Unmarshal(raw, &message)
}

// check verifies what the format promises beyond its field numbers.
func check(message *pb.UploadRequest) error {
	if message.UploadTs == 0 {
		return errors.New("no upload_ts")
	}
	for _, m := range message.Metrics {
		if err := checkMetric(m); err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
	}
	for _, batch := range message.LogBatches {
		if err := checkTags(batch.Tags); err != nil {
			return fmt.Errorf("log batch: %w", err)
		}
		if len(batch.LogEntries) == 0 {
			return errors.New("empty log batch")
		}
	}
	for _, r := range message.Resources {
		if err := checkTags(r.Tags); err != nil {
			return fmt.Errorf("resource %s: %w", r.Kind, err)
		}
		if r.ResourceId != "" || r.Kind == "" || r.LastSeenTs < r.FirstSeenTs {
			return fmt.Errorf("resource %v", r)
		}
	}
	return nil
}

func checkMetric(m *pb.Metric) error {
	if m.MetricId != "" || m.Name == "" || len(m.Datapoints) != 1 {
		return errors.New("wants a name, no id, and one data point")
	}
	if err := checkTags(m.Tags); err != nil {
		return err
	}
	if (len(m.Frames) > 0) != (m.Type == pb.Metric_PROFILE_METRIC) {
		return errors.New("frames belong to profiles only")
	}
	switch v := m.Datapoints[0].Value.(type) {
	case *pb.DataPoint_Gauge:
		return typeIs(m, pb.Metric_GAUGE_METRIC)
	case *pb.DataPoint_Total:
		if v.Total == 0 {
			return errors.New("no growth")
		}
		return typeIs(m, pb.Metric_COUNTER_METRIC)
	case *pb.DataPoint_Histogram_:
		h := v.Histogram
		if len(h.Bins) != len(h.Counts) || !slices.IsSorted(h.Bins) || (h.Count == nil) != (h.Sum == nil) {
			return errors.New("malformed histogram")
		}
		for _, n := range h.Counts {
			if n < 0 {
				return errors.New("negative bin count")
			}
		}
		return typeIs(m, pb.Metric_HISTOGRAM_METRIC)
	case *pb.DataPoint_Profile_:
		p := v.Profile
		if len(p.FrameIds) != len(p.Values) || len(p.FrameIds) != len(p.Samples) || len(p.FrameIds) != len(m.Frames) {
			return errors.New("frames, ids, values and samples are not aligned")
		}
		for i, f := range m.Frames {
			if f.FrameId != xxhash.Sum64String(f.Name) || f.FrameId != p.FrameIds[i] {
				return fmt.Errorf("frame %s has another id", f.Name)
			}
		}
		return typeIs(m, pb.Metric_PROFILE_METRIC)
	}
	return errors.New("no value")
}

func typeIs(m *pb.Metric, want pb.Metric_MetricType) error {
	if m.Type != want {
		return fmt.Errorf("type %v with a value of %v", m.Type, want)
	}
	return nil
}

func checkTags(tags []*pb.Tag) error {
	for i, t := range tags {
		if t.Key == "" || utf8.RuneCountInString(t.Key) > 50 || utf8.RuneCountInString(t.Value) > 250 {
			return fmt.Errorf("tag %q", t.Key)
		}
		if i > 0 && tags[i-1].Key >= t.Key {
			return errors.New("tags are not sorted")
		}
	}
	return nil
}

// accumulate adds a message up.
func (s *Server) accumulate(message *pb.UploadRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range message.Metrics {
		s.instance(m.Tags).add(m)
	}
	for _, batch := range message.LogBatches {
		in := s.instance(batch.Tags)
		in.Logs = append(in.Logs, batch.LogEntries...)
	}
	for _, r := range message.Resources {
		s.instance(r.Tags).Resources[r.Kind+" "+tagText(r.Tags)] = r
	}
}

func (s *Server) instance(tags []*pb.Tag) *Instance {
	id := tagMap(tags)["instance.id"]
	if s.instances == nil {
		s.instances = make(map[string]*Instance)
	}
	in := s.instances[id]
	if in == nil {
		in = &Instance{ID: id, Series: make(map[string]*Series), Resources: make(map[string]*pb.Resource)}
		s.instances[id] = in
	}
	return in
}

func (in *Instance) add(m *pb.Metric) {
	key := m.Type.String() + " " + m.Name + " " + tagText(m.Tags)
	series := in.Series[key]
	if series == nil {
		series = &Series{Name: m.Name, Type: m.Type, Tags: tagMap(m.Tags), Bins: make(map[float64]int64), Frames: make(map[string]Frame)}
		in.Series[key] = series
	}
	point := m.Datapoints[0]
	series.Updated = max(series.Updated, point.MeasurementTs)
	switch v := point.Value.(type) {
	case *pb.DataPoint_Gauge:
		series.Value = v.Gauge
	case *pb.DataPoint_Total:
		series.Value += v.Total
	case *pb.DataPoint_Histogram_:
		for i, bin := range v.Histogram.Bins {
			series.Bins[bin] += v.Histogram.Counts[i]
		}
		if v.Histogram.Count != nil {
			series.HasTotals = true
			series.Count += *v.Histogram.Count
			series.Sum += *v.Histogram.Sum
		}
		if low := v.Histogram.Min; low != nil && (series.Min == nil || *low < *series.Min) {
			series.Min = low
		}
		if high := v.Histogram.Max; high != nil && (series.Max == nil || *high > *series.Max) {
			series.Max = high
		}
	case *pb.DataPoint_Profile_:
		for i, f := range m.Frames {
			sum := series.Frames[f.Name]
			sum.Value += v.Profile.Values[i]
			sum.Samples += v.Profile.Samples[i]
			series.Frames[f.Name] = sum
		}
	}
}

// Requests returns every request so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Faults returns what was wrong with requests so far.
func (s *Server) Faults() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// IDs returns the names of all instances.
func (s *Server) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.instances))
}

// Read calls f with an instance, which is nil if it is unknown, while nothing is added.
func (s *Server) Read(instance string, f func(*Instance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.instances[instance])
}

func (s *Server) reply(w http.ResponseWriter, r *http.Request, value func() any) {
	if r.Header.Get("X-API-Key") != s.Key {
		http.Error(w, "unknown key", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	v := value()
	s.mu.Unlock()
	if v == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) instanceList() any {
	type entry struct {
		InstanceID string            `json:"instance_id"`
		Tags       map[string]string `json:"tags"`
		FirstSeen  int64             `json:"first_seen_ts"`
		LastSeen   int64             `json:"last_seen_ts"`
	}
	list := []entry{}
	for _, id := range slices.Sorted(maps.Keys(s.instances)) {
		e := entry{InstanceID: id, Tags: map[string]string{"instance.id": id}}
		for _, r := range s.instances[id].Resources {
			if e.FirstSeen == 0 || r.FirstSeenTs/1e9 < e.FirstSeen {
				e.FirstSeen = r.FirstSeenTs / 1e9
			}
			e.LastSeen = max(e.LastSeen, r.LastSeenTs/1e9)
		}
		list = append(list, e)
	}
	return map[string]any{"instances": list}
}

// signals renders an instance in the shape of the local document, with "platform" where that has "profiler".
func (s *Server) signals(id string) any {
	in := s.instances[id]
	if in == nil {
		return nil
	}
	metrics := []map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(in.Series)) {
		series := in.Series[key]
		var stats map[string]any
		switch series.Type {
		case pb.Metric_GAUGE_METRIC:
			stats = map[string]any{"value": series.Value}
		case pb.Metric_COUNTER_METRIC:
			stats = map[string]any{"total": series.Value}
		case pb.Metric_HISTOGRAM_METRIC:
			stats = map[string]any{"count": series.Count, "sum": series.Sum, "min": series.Min, "max": series.Max}
		case pb.Metric_PROFILE_METRIC:
			frames := []map[string]any{}
			for _, name := range slices.Sorted(maps.Keys(series.Frames)) {
				f := series.Frames[name]
				frames = append(frames, map[string]any{"name": name, "value": f.Value, "samples": f.Samples})
			}
			stats = map[string]any{"frames": frames}
		}
		kind := strings.ToLower(strings.TrimSuffix(series.Type.String(), "_METRIC"))
		metrics = append(metrics, map[string]any{"name": series.Name, "type": kind, "tags": series.Tags, "stats": stats, "updated_ns": series.Updated})
	}
	return map[string]any{
		"platform": map[string]string{"version": "test"}, "payload_ns": time.Now().UnixNano(), "context": map[string]string{"instance.id": id},
		"metrics": metrics, "errors": in.Logs, "resources": slices.Collect(maps.Values(in.Resources)),
	}
}

func tagMap(tags []*pb.Tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[t.Key] = t.Value
	}
	return m
}

func tagText(tags []*pb.Tag) string {
	var b strings.Builder
	for _, t := range tags {
		fmt.Fprintf(&b, "%q=%q ", t.Key, t.Value)
	}
	return b.String()
}
