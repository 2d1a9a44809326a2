package launcher

import (
	"fmt"
	"strings"
	"testing"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestContainerID(t *testing.T) {
	for _, c := range []struct {
		name, cgroup, mountinfo string
		none                    bool
	}{
		{name: "docker v1", cgroup: "12:pids:/docker/" + id + "\n"},
		{name: "docker systemd", cgroup: "1:name=systemd:/system.slice/docker-" + id + ".scope\n"},
		{name: "containerd v2", cgroup: "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_b.slice/cri-containerd-" + id + ".scope\n"},
		{name: "containerd colon", cgroup: "3:cpu:/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:" + id + "\n"},
		{name: "cri-o", cgroup: "0::/kubepods.slice/crio-" + id + ".scope/container\n"},
		{name: "podman", cgroup: "0::/machine.slice/libpod-" + id + ".scope\n"},
		{name: "kubepods v1", cgroup: "2:memory:/kubepods/besteffort/pod1/" + id + "\n"},
		{name: "docker mounts", cgroup: "0::/\n", mountinfo: "600 590 8:1 /var/lib/docker/containers/" + id + "/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"},
		{name: "podman mounts", cgroup: "0::/\n", mountinfo: "600 590 0:2 /containers/storage/overlay-containers/" + id + "/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw\n"},
		{name: "host", cgroup: "0::/user.slice/user-0.slice/session-1.scope\n", mountinfo: "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", none: true},
		{name: "shorter id", cgroup: "4:memory:/process_api/" + id[:32] + "\n", none: true},
		{name: "broken", cgroup: "x\n::\n", mountinfo: "1 2 3\n\n", none: true},
	} {
		want := id
		if c.none {
			want = ""
		}
		if got := containerID(c.cgroup, c.mountinfo); got != want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func FuzzContainerID(f *testing.F) {
	f.Add("0::/docker/"+id, "600 590 8:1 /var/lib/docker/containers/"+id+"/hostname /etc/hostname rw")
	f.Fuzz(func(t *testing.T, cgroup, mountinfo string) {
		if got := containerID(cgroup, mountinfo); got != "" && !isContainerID(got) {
			t.Errorf("%q", got)
		}
	})
}

func TestContextTags(t *testing.T) {
	tags, skipped, refused := contextTags([]string{"GRAPHSIGNAL_TAG_TEAM_Name=Infra=1", "GRAPHSIGNAL_TAG_=x", "graphsignal_tag_a=b",
		"GRAPHSIGNAL_TAG_instance.id=own", "GRAPHSIGNAL_TAG_host.name=mine", "POD_UID=p"})
	if tags["team_name"] != "Infra=1" || tags["a"] != "" || tags["instance.id"] != "own" || tags["host.name"] == "mine" || tags["pod.uid"] != "p" {
		t.Errorf("%v", tags)
	}
	if fmt.Sprint(skipped) != "[GRAPHSIGNAL_TAG_]" || len(refused) > 0 {
		t.Errorf("skipped %v, refused %v", skipped, refused)
	}
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("GRAPHSIGNAL_TAG_T%d=v", i))
	}
	tags, _, refused = contextTags(append(many, "GRAPHSIGNAL_TAG_"+strings.Repeat("k", 300)+"=v"))
	if len(tags) != 30 || len(refused) < 2 || refused[0] != "instance.id" || refused[1] != "host.name" {
		t.Errorf("%d tags, refused %v", len(tags), refused)
	}
}
