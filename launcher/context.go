package launcher

import (
	"encoding/hex"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	tagPrefix = "GRAPHSIGNAL_TAG_"
	// maxTagKey bounds a tag's name: YAML cannot hold a key of more than 1024 characters in one line.
	maxTagKey = 250
	// maxTags is the number of tags from which on no new one is added to those of the environment.
	maxTags = 25
)

// contextTags returns the tags of everything that this run reports: GRAPHSIGNAL_TAG_* and what identifies run, host,
// pod and container. skipped names the variables whose tag cannot be used, refused the tags of ours for which those of the
// environment left no room.
func contextTags(environ []string) (tags map[string]string, skipped, refused []string) {
	tags = make(map[string]string)
	podUID := ""
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if name == "POD_UID" {
			podUID = value
		}
		key, ok := strings.CutPrefix(name, tagPrefix)
		if !ok {
			continue
		}
		if key == "" || len(key) > maxTagKey {
			skipped = append(skipped, name)
			continue
		}
		tags[strings.ToLower(key)] = value
	}
	add := func(key, value string) {
		switch _, there := tags[key]; {
		case value == "":
		case there || len(tags) < maxTags:
			tags[key] = value
		default:
			refused = append(refused, key)
		}
	}
	if _, seeded := tags["instance.id"]; !seeded {
		add("instance.id", instanceID())
	}
	host, _ := os.Hostname()
	add("host.name", host)
	add("pod.uid", podUID)
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	add("container.id", containerID(string(cgroup), string(mounts)))
	return tags, skipped, refused
}

// instanceID returns 12 random hexadecimal digits for one run, or nothing when the kernel has none.
func instanceID() string {
	var random [6]byte
	if n, err := unix.Getrandom(random[:], 0); err != nil || n != len(random) {
		return ""
	}
	return hex.EncodeToString(random[:])
}

// containerID finds the id of the container that this process runs in, from /proc/self/cgroup as Docker, containerd,
// CRI-O and Podman name their control groups, else, where a control group namespace hides the names, from the mounts
// that a container has from its own directory on the host (/proc/self/mountinfo).
func containerID(cgroup, mountinfo string) string {
	for line := range strings.Lines(cgroup) {
		// hierarchy-ID:controllers:path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		elements := strings.Split(fields[2], "/")
		for i := len(elements) - 1; i >= 0; i-- {
			// cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, docker-ID.scope, cri-containerd:ID
			name := strings.TrimSuffix(elements[i], ".scope")
			if id := name[strings.LastIndexAny(name, "-:")+1:]; isContainerID(id) {
				return id
			}
		}
	}
	for line := range strings.Lines(mountinfo) {
		// ID parent major:minor root mount-point ...; the root is the file on the host.
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		for _, path := range fields[3:5] {
			elements := strings.Split(path, "/")
			for i := 1; i < len(elements); i++ {
				if isContainerHolder(elements[i-1]) && isContainerID(elements[i]) {
					return elements[i]
				}
			}
		}
	}
	return ""
}

// isContainerHolder knows the directories whose entries are named by container ids: those of Docker, of Podman and
// CRI-O, and of containerd's tasks in Kubernetes and Docker.
func isContainerHolder(directory string) bool {
	switch directory {
	case "containers", "overlay-containers", "vfs-containers", "btrfs-containers", "k8s.io", "moby":
		return true
	}
	return false
}

func isContainerID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
