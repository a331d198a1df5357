package packaging_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// object is what the tests read of an object of Kubernetes.
type object struct {
	Kind                         string
	AutomountServiceAccountToken *bool
	Spec                         struct {
		Replicas        int
		MinAvailable    any
		Selector        any
		PodSelector     any
		PolicyTypes     []string
		Ingress, Egress []map[string]any
		SessionAffinity string
		Template        struct {
			Metadata struct{ Labels map[string]any }
			Spec     pod
		}
	}
}

type pod struct {
	AutomountServiceAccountToken  *bool
	EnableServiceLinks            *bool
	TerminationGracePeriodSeconds int
	HostNetwork, HostPID          bool
	SecurityContext               securityContext
	TopologySpreadConstraints     []map[string]any
	InitContainers, Containers    []podContainer
}

type securityContext struct {
	RunAsNonRoot             bool
	RunAsUser                int
	AllowPrivilegeEscalation *bool
	ReadOnlyRootFilesystem   bool
	Privileged               bool
	Capabilities             map[string]any
	SeccompProfile           map[string]any
	FSGroupChangePolicy      string
}

type podContainer struct {
	Name, RestartPolicy string
	Args                []string
	Env                 []struct {
		Name, Value string
		ValueFrom   map[string]any
	}
	StartupProbe, LivenessProbe, ReadinessProbe *probe
	Lifecycle                                   struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	Resources       map[string]map[string]string
	SecurityContext securityContext
	VolumeMounts    []struct{ Name, MountPath string }
}

type probe struct {
	HTTPGet struct {
		Path        string
		HTTPHeaders []struct{ Name, Value string }
	}
	Exec struct{ Command []string }
}

func (c podContainer) variable(name string) string {
	for _, v := range c.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// kubernetesFiles returns the texts of a folder below kubernetes.
func kubernetesFiles(t *testing.T, folder string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("kubernetes", folder, "*.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	var texts []string
	for _, file := range found {
		texts = append(texts, read(t, file))
	}
	return strings.Join(texts, "\n---\n")
}

// objects returns the objects of a text, by kind.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var tree map[string]any
		if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		var o object
		// A configuration of gavel is no object; its kind is "".
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		out[o.Kind] = o
	}
	return out
}

// The base runs two servers with as few rights as they need. Each rule can fail.
func TestKubernetesBase(t *testing.T) {
	t.Parallel()
	text := kubernetesFiles(t, "base")
	for _, fault := range faultsOfBase(objects(t, text)) {
		t.Error(fault)
	}
	for spoiled, by := range map[string]string{
		"replicas: 2": "replicas: 1", "minAvailable: 1": "minAvailable: 2", "runAsNonRoot: true": "runAsNonRoot: false",
		"runAsUser: 65532": "runAsUser: 0", "readOnlyRootFilesystem: true": "readOnlyRootFilesystem: false", "drop: [ALL]": "drop: [NET_RAW]",
		"allowPrivilegeEscalation: false": "allowPrivilegeEscalation: true", "type: RuntimeDefault": "type: Unconfined",
		"      automountServiceAccountToken: false": "", "name: gavel\nautomountServiceAccountToken: false": "name: gavel",
		"enableServiceLinks: false": "enableServiceLinks: true", "terminationGracePeriodSeconds: 45": "terminationGracePeriodSeconds: 30",
		"policyTypes: [Ingress, Egress]": "policyTypes: [Ingress]", "limits: {memory: 1Gi}": "limits: {}", "value: localhost": "value: gavel",
		"path: /readyz": "path: /healthz", "podSelector:\n    matchLabels: {app.kubernetes.io/name: gavel}": "podSelector: {}",
		"- {name: tmp, mountPath: /tmp}": "", "sessionAffinity: ClientIP": "", "seconds: 5}": "seconds: 0}", "topologyKey": "key",
		`args: ["store", "init"]`: `args: ["health"]`, "key: store-key": "key: x}\n            - {name: GAVEL_ANCHOR_KEY, value: secret",
	} {
		if !strings.Contains(text, spoiled) || len(faultsOfBase(objects(t, strings.ReplaceAll(text, spoiled, by)))) == 0 {
			t.Errorf("a base with %q for %q passes", by, spoiled)
		}
	}
}

func faultsOfBase(all map[string]object) []string {
	deployment := all["Deployment"]
	p := deployment.Spec.Template.Spec
	labels := map[string]any{"matchLabels": deployment.Spec.Template.Metadata.Labels}
	out := faultsOfPod(p, append(p.InitContainers, p.Containers...))
	no := func(b *bool) bool { return b != nil && !*b }
	asksLocalhost := func(p *probe) bool {
		return p != nil && len(p.HTTPGet.HTTPHeaders) == 1 && p.HTTPGet.HTTPHeaders[0].Name == "Host" && p.HTTPGet.HTTPHeaders[0].Value == "localhost"
	}
	for _, s := range p.TopologySpreadConstraints {
		if s["topologyKey"] == nil || !reflect.DeepEqual(s["labelSelector"], labels) {
			out = append(out, "topologySpreadConstraints")
		}
	}
	server, store := p.Containers[0], p.InitContainers[0]
	for what, holds := range map[string]bool{
		"two replicas":                                  deployment.Spec.Replicas == 2,
		"one that stays":                                all["PodDisruptionBudget"].Spec.MinAvailable == 1.0,
		"the same pods everywhere":                      reflect.DeepEqual(deployment.Spec.Selector, any(labels)) && reflect.DeepEqual(all["PodDisruptionBudget"].Spec.Selector, any(labels)) && reflect.DeepEqual(all["NetworkPolicy"].Spec.PodSelector, any(labels)),
		"the service's pods":                            reflect.DeepEqual(all["Service"].Spec.Selector, labels["matchLabels"]) && all["Service"].Spec.SessionAffinity == "ClientIP",
		"a policy for both directions":                  slices.Equal(all["NetworkPolicy"].Spec.PolicyTypes, []string{"Ingress", "Egress"}) && len(all["NetworkPolicy"].Spec.Ingress) == 1 && len(all["NetworkPolicy"].Spec.Egress) == 2,
		"spread over hosts":                             len(p.TopologySpreadConstraints) == 2,
		"no token of a service account":                 no(p.AutomountServiceAccountToken) && no(all["ServiceAccount"].AutomountServiceAccountToken),
		"the probes' Host":                              asksLocalhost(server.StartupProbe) && asksLocalhost(server.LivenessProbe) && asksLocalhost(server.ReadinessProbe),
		"alive by /healthz, ready by /readyz":           server.LivenessProbe.HTTPGet.Path == "/healthz" && server.ReadinessProbe.HTTPGet.Path == "/readyz",
		"time for proxies, and for requests to end":     server.Lifecycle.PreStop.Sleep.Seconds >= 5 && p.TerminationGracePeriodSeconds >= server.Lifecycle.PreStop.Sleep.Seconds+30+4,
		"tables before servers":                         slices.Equal(store.Args, []string{"store", "init"}) && slices.Equal(server.Args, []string{"serve"}),
		"not a secret's value, which is put in by hand": all["Secret"].Kind == "",
	} {
		if !holds {
			out = append(out, "the base lacks: "+what)
		}
	}
	return out
}

// faultsOfPod looks at what gavel's containers may do.
func faultsOfPod(p pod, containers []podContainer) []string {
	var out []string
	if p.HostNetwork || p.HostPID || p.EnableServiceLinks == nil || *p.EnableServiceLinks {
		out = append(out, "the pod is open to its host, or gets variables from Services")
	}
	for _, c := range containers {
		s, whole := c.SecurityContext, p.SecurityContext
		profile := s.SeccompProfile
		if profile == nil {
			profile = whole.SeccompProfile
		}
		for what, holds := range map[string]bool{
			"not root":                              (s.RunAsNonRoot || whole.RunAsNonRoot) && (s.RunAsUser == 65532 || s.RunAsUser == 0 && whole.RunAsUser == 65532),
			"a read-only root":                      s.ReadOnlyRootFilesystem,
			"no capabilities":                       reflect.DeepEqual(s.Capabilities, map[string]any{"drop": []any{"ALL"}}),
			"no escalation":                         s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation && !s.Privileged,
			"the runtime's profile of system calls": profile["type"] == "RuntimeDefault",
			"a limit of memory":                     c.Resources["limits"]["memory"] != "" && c.Resources["requests"]["cpu"] != "",
			"a /tmp and a /data":                    slices.ContainsFunc(c.VolumeMounts, func(m struct{ Name, MountPath string }) bool { return m.MountPath == "/tmp" }) && slices.ContainsFunc(c.VolumeMounts, func(m struct{ Name, MountPath string }) bool { return m.MountPath == "/data" }),
		} {
			if !holds {
				out = append(out, c.Name+" lacks: "+what)
			}
		}
		for _, v := range c.Env {
			if regexp.MustCompile(`KEY|TOKEN|PASSWORD`).MatchString(v.Name) && v.ValueFrom["secretKeyRef"] == nil {
				out = append(out, c.Name+": "+v.Name+" is written into the file")
			}
		}
	}
	return out
}

// The sidecar is a native one: it starts before the agent, which alone reaches it.
func TestKubernetesSidecar(t *testing.T) {
	t.Parallel()
	text := read(t, "kubernetes/sidecar/sidecar.yaml")
	for _, fault := range faultsOfSidecar(objects(t, text)["Deployment"]) {
		t.Error(fault)
	}
	for spoiled, by := range map[string]string{
		"restartPolicy: Always": "restartPolicy: OnFailure", `"127.0.0.1:4285"`: `"0.0.0.0:4285"`, "readOnlyRootFilesystem: true": "",
		"replicas: 1": "replicas: 2", "startupProbe:": "postStartProbe:", `["/gavel", "health"]`: `["/bin/sh", "-c", "gavel health"]`,
		"fsGroupChangePolicy: OnRootMismatch": "", "runAsUser: 65532": "", "enableServiceLinks: false": "", `value: "false"`: `value: "true"`,
	} {
		if !strings.Contains(text, spoiled) || len(faultsOfSidecar(objects(t, strings.ReplaceAll(text, spoiled, by))["Deployment"])) == 0 {
			t.Errorf("a sidecar with %q for %q passes", by, spoiled)
		}
	}
}

func faultsOfSidecar(deployment object) []string {
	p := deployment.Spec.Template.Spec
	out := faultsOfPod(p, p.InitContainers)
	c := p.InitContainers[0]
	asks := func(p *probe) bool { return p != nil && slices.Equal(p.Exec.Command, []string{"/gavel", "health"}) }
	for what, holds := range map[string]bool{
		"one sidecar, native":             len(p.InitContainers) == 1 && len(p.Containers) == 0 && c.RestartPolicy == "Always",
		"one pod over a file":             deployment.Spec.Replicas == 1,
		"only the pod reaches it":         c.variable("GAVEL_LISTEN") == "127.0.0.1:4285" && c.variable("GAVEL_INSECURE_PLAIN_HTTP") == "false",
		"probes without a shell":          asks(c.StartupProbe) && asks(c.ReadinessProbe) && c.LivenessProbe == nil,
		"keys that stay closed to groups": p.SecurityContext.FSGroupChangePolicy == "OnRootMismatch",
	} {
		if !holds {
			out = append(out, "the sidecar lacks: "+what)
		}
	}
	return out
}

// Files that deployments give to gavel name only variables that it has.
func TestDeploymentsNameVariables(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"GAVEL_CONFIG": true, "LLM_API_KEY": true} // neither is a key of the file
	for _, name := range regexp.MustCompile("`((?:GAVEL|LLM)_[A-Z_]+)`").FindAllStringSubmatch(read(t, "../docs/reference/config.md"), -1) {
		known[name[1]] = true
	}
	files := map[string]string{"compose.yaml": read(t, "../compose.yaml")}
	err := filepath.WalkDir("kubernetes", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			files[path] = read(t, path)
		}
		return err
	})
	if err != nil || len(known) < 50 {
		t.Fatalf("%d variables, %v", len(known), err)
	}
	var used int
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, m := range regexp.MustCompile(`(?m)^\s+(?:- (?:\{name: |name: ))?((?:GAVEL|LLM)_[A-Z_]+)\b`).FindAllStringSubmatch(files[file], -1) {
			if used++; !known[m[1]] {
				t.Errorf("%s: gavel has no variable %s", file, m[1])
			}
		}
	}
	if used < 15 {
		t.Errorf("%d variables found", used)
	}
}
