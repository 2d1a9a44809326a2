package nvmlreceiver

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/graphsignal/graphsignal-collector/internal/series"
)

// linkState is what is known of a device's NVLinks.
type linkState struct {
	// present is the number of links that the device has, -1 while it is not known.
	present int
	// noFields says that the error counters are not fields (before Hopper), noCounters that they are not counters
	// of a link either (from Blackwell on), noRecoveries that those of newer parts are not there.
	noFields, noCounters, noRecoveries bool
}

// linkErrors are the error counters, each a sum over the enabled links.
var linkErrors = []struct {
	name     string
	field    uint32
	counters []nvml.NvLinkErrorCounter
}{
	{"gpu_nvlink_errors_replay", nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, []nvml.NvLinkErrorCounter{nvml.NVLINK_ERROR_DL_REPLAY}},
	{"gpu_nvlink_errors_recovery", nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, []nvml.NvLinkErrorCounter{nvml.NVLINK_ERROR_DL_RECOVERY}},
	{"gpu_nvlink_errors_crc", nvml.FI_DEV_NVLINK_ERROR_DL_CRC, []nvml.NvLinkErrorCounter{nvml.NVLINK_ERROR_DL_CRC_FLIT, nvml.NVLINK_ERROR_DL_CRC_DATA}},
}

// readLinks counts the links that are enabled and adds up their errors.
func readLinks(d *device, r *reading) nvml.Return {
	var enabled []int
	var asked bool
	last := nvml.ERROR_NOT_SUPPORTED
	for link := range d.linkCount() {
		state, ret := d.handle.GetNvLinkState(link)
		switch meaning(ret) {
		case answered:
			asked = true
			if state == nvml.FEATURE_ENABLED {
				enabled = append(enabled, link)
			}
		case lost:
			return ret
		case refused:
			if ret == nvml.ERROR_INVALID_ARGUMENT {
				break // there is no such link
			}
			last = ret
		case failed:
			last = ret
		}
	}
	if !asked {
		return last
	}
	r.gauge("gpu_nvlink_link_count", series.Int(int64(len(enabled))))
	r.gauge("gpu_nvlink_active_links", series.Int(int64(len(enabled))))
	if len(enabled) == 0 {
		return nvml.SUCCESS
	}
	if d.perLink.Load() {
		d.linkThroughput(r, enabled)
	}
	switch {
	case d.linkErrorFields(r, enabled):
	case d.linkErrorCounters(r, enabled):
	default:
		d.linkRecoveries(r, enabled)
	}
	return nvml.SUCCESS
}

// linkCount is how many links are to be asked.
func (d *device) linkCount() int {
	if d.links.present >= 0 {
		return d.links.present
	}
	d.links.present = nvml.NVLINK_MAX_LINKS
	if d.lib.Has("nvmlDeviceGetFieldValues") {
		count := []nvml.FieldValue{{FieldId: nvml.FI_DEV_NVLINK_LINK_COUNT}}
		if d.handle.GetFieldValues(count) == nvml.SUCCESS {
			if n, ret := fieldTotal(&count[0]); ret == nvml.SUCCESS {
				d.links.present = min(int(n.Int64()), nvml.NVLINK_MAX_LINKS)
			}
		}
	}
	return d.links.present
}

// linkThroughput adds up the throughput counters of the links.
func (d *device) linkThroughput(r *reading, links []int) {
	var values []nvml.FieldValue
	for _, f := range linkFields {
		for _, link := range links {
			values = append(values, nvml.FieldValue{FieldId: f.id, ScopeId: uint32(link)})
		}
	}
	if d.handle.GetFieldValues(values) != nvml.SUCCESS {
		return
	}
	for i, f := range linkFields {
		if total, ok := sumFields(values[i*len(links) : (i+1)*len(links)]); ok {
			r.counter(f.name, total)
		}
	}
}

// linkErrorFields reads the errors of all links with one call.
func (d *device) linkErrorFields(r *reading, links []int) bool {
	if d.links.noFields || !d.lib.Has("nvmlDeviceGetFieldValues") {
		return false
	}
	var values []nvml.FieldValue
	for _, e := range linkErrors {
		for _, link := range links {
			values = append(values, nvml.FieldValue{FieldId: e.field, ScopeId: uint32(link)})
		}
	}
	ret := d.handle.GetFieldValues(values)
	var found bool
	for i, e := range linkErrors {
		total, ok := sumFields(values[i*len(links) : (i+1)*len(links)])
		if ret == nvml.SUCCESS && ok {
			r.counter(e.name, total)
			found = true
		}
	}
	d.links.noFields = !found && (ret == nvml.SUCCESS || meaning(ret) == unsupported)
	return found
}

// sumFields adds up fields; false if any has no value.
func sumFields(values []nvml.FieldValue) (series.Number, bool) {
	var total uint64
	for i := range values {
		n, ret := fieldTotal(&values[i])
		if ret != nvml.SUCCESS {
			return series.Number{}, false
		}
		total += n.Uint64()
	}
	return series.Uint(total), true
}

// linkErrorCounters asks for each counter of each link.
func (d *device) linkErrorCounters(r *reading, links []int) bool {
	if d.links.noCounters || !d.lib.Has("nvmlDeviceGetNvLinkErrorCounter") {
		return false
	}
	var found bool
	unsupportedAll := true
	for _, e := range linkErrors {
		var total uint64
		ok := true
		for _, counter := range e.counters {
			for _, link := range links {
				n, ret := d.handle.GetNvLinkErrorCounter(link, counter)
				ok = ok && ret == nvml.SUCCESS
				unsupportedAll = unsupportedAll && meaning(ret) == unsupported
				if !ok {
					break
				}
				total += n
			}
		}
		if ok {
			r.counter(e.name, series.Uint(total))
			found = true
		}
	}
	d.links.noCounters = unsupportedAll
	return found
}

// linkRecoveries reads the one comparable error counter of newer parts: times that a link went into recovery.
func (d *device) linkRecoveries(r *reading, links []int) {
	if d.links.noRecoveries || !d.lib.Has("nvmlDeviceGetFieldValues") {
		return
	}
	var values []nvml.FieldValue
	for _, link := range links {
		values = append(values, nvml.FieldValue{FieldId: nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, ScopeId: uint32(link)})
	}
	ret := d.handle.GetFieldValues(values)
	total, ok := sumFields(values)
	if ret == nvml.SUCCESS && ok {
		r.counter("gpu_nvlink_errors_recovery", total)
	}
	d.links.noRecoveries = !ok && (ret == nvml.SUCCESS || meaning(ret) == unsupported)
}
