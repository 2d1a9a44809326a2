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
	// perLink says that throughput has to be asked for link by link.
	perLink bool
	// enabled are the links that were, when they were asked last.
	enabled []int
}

// allLinks is the scope of an NVLink field that means the sum over all links.
const allLinks = 1<<32 - 1

// linkFields are the throughput counters, in KiB over all links.
var linkFields = []struct {
	id   uint32
	name string
}{
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, "gpu_nvlink_throughput_data_tx_kibibytes"},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, "gpu_nvlink_throughput_data_rx_kibibytes"},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_RAW_TX, "gpu_nvlink_throughput_raw_tx_kibibytes"},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_RAW_RX, "gpu_nvlink_throughput_raw_rx_kibibytes"},
}

// readLinkThroughput reads the throughput over all links with one call. Each field has a status of its own.
func readLinkThroughput(d *device, r *reading) nvml.Return {
	if d.links.perLink {
		return d.linkThroughput(r)
	}
	values := make([]nvml.FieldValue, len(linkFields))
	for i, f := range linkFields {
		values[i] = nvml.FieldValue{FieldId: f.id, ScopeId: allLinks}
	}
	if ret := d.handle.GetFieldValues(values); ret != nvml.SUCCESS {
		return ret
	}
	var missing int
	for i := range values {
		switch n, ret := fieldTotal(&values[i]); {
		case ret == nvml.SUCCESS:
			r.counter(linkFields[i].name, n)
		case meaning(ret) == unsupported:
			missing++
		case ret == nvml.ERROR_INVALID_ARGUMENT: // a driver that knows single links only
			d.links.perLink = true
		}
	}
	switch {
	case d.links.perLink:
		return d.linkThroughput(r)
	case missing == len(linkFields):
		return nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.SUCCESS
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
	d.links.enabled = enabled
	r.gauge("gpu_nvlink_link_count", series.Int(int64(len(enabled))))
	r.gauge("gpu_nvlink_active_links", series.Int(int64(len(enabled))))
	if len(enabled) == 0 {
		return nvml.SUCCESS
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

// linkThroughput adds up the throughput counters of the enabled links, where the driver does not.
func (d *device) linkThroughput(r *reading) nvml.Return {
	if len(d.links.enabled) == 0 {
		return nvml.SUCCESS
	}
	ids := make([]uint32, len(linkFields))
	for i, f := range linkFields {
		ids[i] = f.id
	}
	totals, ret := d.sumLinks(ids, d.links.enabled)
	for i, f := range linkFields {
		if totals[i].known {
			r.counter(f.name, totals[i].sum)
		}
	}
	return ret
}

// linkTotal is the sum of a field over links; it is not known where any of them has no value.
type linkTotal struct {
	sum   series.Number
	known bool
}

// sumLinks adds up fields over links with one call. The fields of a link are asked for side by side: the driver asks the
// GPU anew whenever the link changes, at a millisecond each.
func (d *device) sumLinks(ids []uint32, links []int) ([]linkTotal, nvml.Return) {
	values := make([]nvml.FieldValue, 0, len(ids)*len(links))
	for _, link := range links {
		for _, id := range ids {
			values = append(values, nvml.FieldValue{FieldId: id, ScopeId: uint32(link)})
		}
	}
	totals := make([]linkTotal, len(ids))
	if ret := d.handle.GetFieldValues(values); ret != nvml.SUCCESS {
		return totals, ret
	}
	for i := range ids {
		var sum uint64
		known := true
		for l := range links {
			n, ret := fieldTotal(&values[l*len(ids)+i])
			known = known && ret == nvml.SUCCESS
			sum += n.Uint64()
		}
		totals[i] = linkTotal{series.Uint(sum), known}
	}
	return totals, nvml.SUCCESS
}

// linkErrorFields reads the errors of all links with one call.
func (d *device) linkErrorFields(r *reading, links []int) bool {
	if d.links.noFields || !d.lib.Has("nvmlDeviceGetFieldValues") {
		return false
	}
	ids := make([]uint32, len(linkErrors))
	for i, e := range linkErrors {
		ids[i] = e.field
	}
	totals, ret := d.sumLinks(ids, links)
	var found bool
	for i, e := range linkErrors {
		if totals[i].known {
			r.counter(e.name, totals[i].sum)
			found = true
		}
	}
	d.links.noFields = !found && (ret == nvml.SUCCESS || meaning(ret) == unsupported)
	return found
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
	totals, ret := d.sumLinks([]uint32{nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS}, links)
	if totals[0].known {
		r.counter("gpu_nvlink_errors_recovery", totals[0].sum)
	}
	d.links.noRecoveries = !totals[0].known && (ret == nvml.SUCCESS || meaning(ret) == unsupported)
}
