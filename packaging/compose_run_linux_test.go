package packaging_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	composeBinary = flag.String("compose", "", "run the services of compose.yaml with this binary of gavel, as processes in namespaces (root, PostgreSQL, HAProxy)")
	composeInside = flag.Bool("compose.inside", false, "set by the test itself")
)

// TestComposeRuns starts the services of compose.yaml in their order, without a container engine. Each is a process in
// its own network and mount namespace, with the command, environment, user, files and health check that compose.yaml
// gives. In place of an image there are this machine's programs. Moves are made through the proxy, a replica is killed,
// and everything stops cleanly.
func TestComposeRuns(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	p := newProject(t, readCompose(t))
	p.up("store") // also starts what it depends on
	if err := p.containers["store"].cmd.Wait(); err != nil {
		t.Fatalf("store init: %v\n%s", err, p.containers["store"].log())
	}
	c := &client{t: t, at: p.published("proxy")}
	c.token = p.token("ops", "operator")
	p.up("proxy")
	c.works(p.token("someone", "agent"))

	p.kill("gavel-1")
	c.answersDuring(3 * time.Second)
	p.start("gavel-1")
	p.awaitHealthy("gavel-1")
	c.works(c.token)

	p.stop("gavel-1")
	c.answersDuring(time.Second)
	p.stop("gavel-2")
	p.awaitUnhealthy("proxy")
	p.stop("proxy")
	p.stop("postgres")
}

// TestSidecarRuns starts the sidecar for Kubernetes as TestComposeRuns starts services. Its probe succeeds, an agent in
// the same pod needs no token, and nobody outside of the pod reaches it.
func TestSidecarRuns(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	c := objects(t, read(t, "kubernetes/sidecar/sidecar.yaml"))["Deployment"].Spec.Template.Spec.InitContainers[0]
	s := &service{
		Build: ".", Command: c.Args, Environment: map[string]string{}, ReadOnly: c.SecurityContext.ReadOnlyRootFilesystem,
		User:        fmt.Sprintf("%d:%[1]d", c.SecurityContext.RunAsUser),
		Healthcheck: healthcheck{Test: append([]string{"CMD"}, c.StartupProbe.Exec.Command...), Timeout: 5 * time.Second, StartPeriod: time.Minute},
		StopGrace:   45 * time.Second,
	}
	for _, v := range c.Env {
		s.Environment[v.Name] = v.Value
	}
	for _, m := range c.VolumeMounts {
		if m.MountPath == "/definitions" {
			s.Volumes = append(s.Volumes, "./flows:/definitions:ro")
		} else {
			s.Tmpfs = append(s.Tmpfs, m.MountPath+":mode=0700,uid=65532,gid=65532")
		}
	}
	p := newProject(t, composeFile{Services: map[string]*service{"pod": s}})
	p.up("pod")
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", "pod", "curl", "-fsS", "--noproxy", "*", "-H", "Content-Type: application/json",
		"-d", `{"type":"ticket"}`, "http://127.0.0.1:4285/v1/instances").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"open"`) {
		t.Errorf("an agent in the pod: %v: %s", err, out)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(p.containers["pod"].address, "4285")); err == nil {
		_ = conn.Close()
		t.Error("it can be reached from outside of the pod")
	}
	p.stop("pod")
}

// inNamespaces runs the test again as the first process of namespaces of its own, and returns true there.
func inNamespaces(t *testing.T) bool {
	t.Helper()
	if *composeInside {
		return true
	}
	if *composeBinary == "" {
		t.Skip("-compose names no binary")
	}
	binary, err := filepath.Abs(*composeBinary)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m", "-compose", binary, "-compose.inside")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// project is compose.yaml, its folder and what runs.
type project struct {
	t          *testing.T
	file       composeFile
	dir        string // as the checkout is for Compose
	containers map[string]*container
	started    int
}

type container struct {
	*service

	name    string
	address string
	env     []string
	cmd     *exec.Cmd
	logFile string
}

// log returns the last lines that a service wrote.
func (c *container) log() string {
	text, err := os.ReadFile(c.logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

const ticket = `{"name": "ticket", "initialState": "open",
 "states": {"open": {"transitions": {"close": "closed"}}, "closed": {"final": true}},
 "transitionValidators": {"close": "(data, context) => ({ valid: data.why === 'done', reason: 'Say why' })"}}`

func newProject(t *testing.T, file composeFile) *project {
	t.Helper()
	p := &project{t: t, file: file, dir: t.TempDir(), containers: map[string]*container{}}
	for dir := p.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		p.run("chmod", "0755", dir) // other users read files here
	}
	p.run("cp", "-r", "../compose.yaml", p.dir)
	p.run("mkdir", filepath.Join(p.dir, "packaging"))
	p.run("cp", "-r", "compose", filepath.Join(p.dir, "packaging"))
	p.run(filepath.Join(p.dir, "packaging", "compose", "secrets.sh"))
	if err := os.WriteFile(filepath.Join(p.dir, "flows", "ticket.json"), []byte(ticket), 0o644); err != nil { //nolint:gosec // for another user
		t.Fatal(err)
	}
	p.run("mount", "-t", "tmpfs", "netns", "/run/netns")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "br0", "type", "bridge"},
		{"link", "set", "br0", "up"},
		{"addr", "add", "10.77.0.254/24", "dev", "br0"},
	} {
		p.run("ip", args...)
	}
	for name, s := range p.file.Services {
		address := fmt.Sprintf("10.77.0.%d", len(p.containers)+1)
		p.containers[name] = &container{service: s, name: name, address: address, logFile: filepath.Join(t.TempDir(), "log")}
		peer := fmt.Sprintf("v%d", len(p.containers))
		for _, args := range [][]string{
			{"netns", "add", name},
			{"link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", name},
			{"link", "set", peer, "master", "br0", "up"},
			{"-n", name, "addr", "add", address + "/24", "dev", "eth0"},
			{"-n", name, "link", "set", "eth0", "up"},
			{"-n", name, "link", "set", "lo", "up"},
		} {
			p.run("ip", args...)
		}
	}
	t.Cleanup(func() {
		for name, c := range p.containers {
			if t.Failed() && c.cmd != nil {
				t.Logf("--- %s\n%s", name, c.log())
			}
		}
	})
	return p
}

func (p *project) run(program string, args ...string) {
	p.t.Helper()
	if program == "mount" {
		_ = os.MkdirAll(args[len(args)-1], 0o755) //nolint:gosec // a mount point
	}
	if out, err := exec.CommandContext(p.t.Context(), program, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// up starts a service after those that it depends on, as far as they do not run yet, and waits until it is healthy.
func (p *project) up(name string) {
	p.t.Helper()
	c := p.containers[name]
	if c.cmd != nil {
		return
	}
	for _, other := range slices.Sorted(maps.Keys(c.DependsOn)) {
		p.up(other)
		switch condition := c.DependsOn[other]["condition"]; condition {
		case "service_healthy", "service_completed_successfully": // up waited for it, or TestComposeRuns did
		default:
			p.t.Fatalf("%s waits for %s only until %q", name, other, condition)
		}
	}
	p.start(name)
	if !p.file.once(name) {
		p.awaitHealthy(name)
	}
}

func (p *project) start(name string) {
	p.t.Helper()
	c := p.containers[name]
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	c.cmd = p.command(c, c.Command)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// command returns a command in a new container of a service.
func (p *project) command(c *container, args []string) *exec.Cmd {
	p.t.Helper()
	p.started++
	image := p.imageOf(c)
	var env []string
	for variable, value := range c.Environment {
		env = append(env, variable+"="+interpolate(value))
	}
	c.env = append(append(slices.Clone(image.env), env...), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	uid, gid, _ := strings.Cut(c.User, ":")
	script := []string{
		"set -euo pipefail",
		"R=" + filepath.Join(filepath.Dir(c.logFile), fmt.Sprint("root", p.started)),
		`mkdir "$R"; mount -t tmpfs -o mode=0755 root "$R"; mkdir "$R"/{proc,dev,etc,tmp}`,
		`mount -t proc proc "$R/proc"`,
		`for d in null zero urandom random; do touch "$R/dev/$d"; mount --bind /dev/$d "$R/dev/$d"; done`,
		`mkdir -m 1777 "$R/dev/shm"; mount -t tmpfs -o mode=1777 shm "$R/dev/shm"`,
		"echo '127.0.0.1 localhost' >\"$R/etc/hosts\"",
		// Places for mounts: in a tmpfs of their own where the folder above is read only.
		`place() { local up; up=$(dirname "$R$1"); while [ ! -d "$up" ]; do up=$(dirname "$up"); done
		   case $up in "$R"/usr*) mount -t tmpfs -o mode=0755 place "$up" ;; esac
		   mkdir -p "$(dirname "$R$1")"; if [ "$2" = folder ]; then mkdir -p "$R$1"; else touch "$R$1"; fi; }`,
	}
	for _, other := range p.containers {
		if slices.ContainsFunc(other.Networks, func(n string) bool { return slices.Contains(c.Networks, n) }) {
			script = append(script, fmt.Sprintf("echo %s %s >>\"$R/etc/hosts\"", other.address, other.name))
		}
	}
	script = append(script, image.root)
	for _, mount := range c.Tmpfs {
		at, options, _ := strings.Cut(mount, ":")
		script = append(script, fmt.Sprintf(`place %s folder; mount -t tmpfs -o %s tmpfs "$R%s"`, at, options, at))
	}
	for _, secret := range c.Secrets {
		at := "/run/secrets/" + secret
		script = append(script, fmt.Sprintf(`place %s file; mount --bind %s "$R%s"; mount -o remount,bind,ro "$R%s"`, at, filepath.Join(p.dir, p.file.Secrets[secret].File), at, at))
	}
	for _, volume := range c.Volumes {
		script = append(script, p.mount(volume, uid, gid))
	}
	if c.ReadOnly {
		script = append(script, `mount -o remount,bind,ro "$R"`)
	}
	script = append(script, fmt.Sprintf(`exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid,+dac_read_search `+
		`"$(type -P unshare)" --root="$R" --wd=%s --setgid=%s --setuid=%s "$@"`, image.workdir, gid, uid))
	whole := append([]string{"netns", "exec", c.name, "bash", "-c", strings.Join(script, "\n"), "container"}, image.entrypoint...)
	cmd := exec.Command("ip", append(whole, args...)...) //nolint:gosec // from compose.yaml
	cmd.Env = c.env
	return cmd
}

// mount returns the script that mounts an entry of volumes. A new named volume belongs to the user of its service, as
// the image's folder does.
func (p *project) mount(volume, uid, gid string) string {
	p.t.Helper()
	parts := strings.Split(volume, ":")
	from, at := filepath.Join(p.dir, parts[0]), parts[1]
	kind := "folder"
	if !strings.HasPrefix(parts[0], ".") {
		from = filepath.Join(p.dir, "volumes", parts[0])
		p.run("install", "-d", "-m", "0700", "-o", uid, "-g", gid, from)
	} else if info, err := os.Stat(from); err != nil {
		p.t.Fatal(err)
	} else if !info.IsDir() {
		kind = "file"
	}
	script := fmt.Sprintf(`place %s %s; mount --bind %s "$R%s"`, at, kind, from, at)
	if len(parts) > 2 && parts[2] == "ro" {
		script += fmt.Sprintf(`; mount -o remount,bind,ro "$R%s"`, at)
	}
	return script
}

// interpolate replaces ${NAME:-default} by its default: a newcomer sets none of the variables.
func interpolate(value string) string {
	return regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(value, "$1")
}

// image stands in for an image.
type image struct {
	root       string // script that fills the root folder
	entrypoint []string
	env        []string
	workdir    string
}

// entrypointOfPostgres does what the official image does before it starts the server.
const entrypointOfPostgres = `set -euo pipefail
PATH=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1):$PATH
export PGDATA=/var/lib/postgresql/data
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" $POSTGRES_INITDB_ARGS
  printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  pg_ctl -w -o "-c listen_addresses=''" start
  createdb -U "$POSTGRES_USER" -O "$POSTGRES_USER" --maintenance-db postgres "$POSTGRES_DB"
  pg_ctl -w -m fast stop
fi
exec "$@"`

func (p *project) imageOf(c *container) image {
	p.t.Helper()
	if c.Build != "" { // the last stage of the Dockerfile
		s := stagesOf(p.t)
		out := image{workdir: s.all("WORKDIR")[0], env: strings.Fields(strings.Join(s.all("ENV"), " "))}
		if err := json.Unmarshal([]byte(s.all("ENTRYPOINT")[0]), &out.entrypoint); err != nil {
			p.t.Fatal(err)
		}
		out.root = fmt.Sprintf(`touch "$R/gavel"; mount --bind %s "$R/gavel"`, *composeBinary)
		return out
	}
	out := image{workdir: "/", root: `mkdir "$R/usr"; mount --rbind /usr "$R/usr"; for d in bin sbin lib lib64; do ln -s usr/$d "$R/$d"; done
		echo root:x:0:0::/:/bin/sh >"$R/etc/passwd"; printf 'hosts: files\n' >"$R/etc/nsswitch.conf"; [ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache "$R/etc"`}
	switch name, _, _ := strings.Cut(c.Image, ":"); name {
	case "haproxy":
	case "postgres":
		out.root += `; echo postgres:x:999:999::/var/lib/postgresql:/bin/sh >>"$R/etc/passwd"`
		out.entrypoint = []string{"/bin/bash", "-c", entrypointOfPostgres, "entrypoint"}
	default:
		p.t.Fatalf("nothing here stands in for the image %s", c.Image)
	}
	return out
}

// check runs the health check of a service in its container.
func (p *project) check(c *container) error {
	uid, gid, _ := strings.Cut(c.User, ":")
	ctx, cancel := context.WithTimeout(p.t.Context(), c.Healthcheck.Timeout)
	defer cancel()
	args := append([]string{"--target", strconv.Itoa(c.cmd.Process.Pid), "--mount", "--net", "--root", "--wd", "--setgid", gid, "--setuid", uid}, c.Healthcheck.Test[1:]...)
	cmd := exec.CommandContext(ctx, "nsenter", args...) //nolint:gosec // from compose.yaml
	cmd.Env = c.env
	if strings.HasPrefix(c.Image, "postgres:") {
		cmd.Env = append(cmd.Env, "PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", c.Healthcheck.Test, err, out)
	}
	return nil
}

func (p *project) awaitHealthy(name string) {
	p.t.Helper()
	c := p.containers[name]
	began := time.Now()
	if err := p.await(name, true, c.Healthcheck.StartPeriod+time.Duration(c.Healthcheck.Retries)*c.Healthcheck.Interval); err != nil {
		p.t.Fatalf("%s does not get healthy: %v", name, err)
	}
	p.t.Logf("%s: healthy after %v", name, time.Since(began).Round(time.Millisecond))
}

func (p *project) awaitUnhealthy(name string) {
	p.t.Helper()
	if err := p.await(name, false, 15*time.Second); err != nil {
		p.t.Fatalf("%s stays healthy", name)
	}
}

func (p *project) await(name string, healthy bool, limit time.Duration) (err error) {
	for until := time.Now().Add(limit); time.Now().Before(until); {
		if err = p.check(p.containers[name]); (err == nil) == healthy {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond): // Docker asks at intervals too
		case <-p.t.Context().Done():
		}
	}
	return errors.Join(err, errors.New("the time is over"))
}

// token runs "docker compose run --rm gavel-1 token create", and reads the token from the terminal.
func (p *project) token(name, role string) string {
	p.t.Helper()
	if _, err := exec.LookPath("script"); err != nil {
		p.t.Fatal("it gives a command a terminal: ", err)
	}
	inner := p.command(p.containers["gavel-1"], []string{"token", "create", name, "--role", role})
	var line strings.Builder
	for _, arg := range inner.Args {
		line.WriteString("'" + strings.ReplaceAll(arg, "'", `'\''`) + "' ")
	}
	cmd := exec.CommandContext(p.t.Context(), "script", "-qec", line.String(), "/dev/null") //nolint:gosec // from compose.yaml
	cmd.Env = inner.Env
	out, err := cmd.Output()
	token := regexp.MustCompile(`gvl_[\w-]{20,}`).FindString(string(out))
	if err != nil || token == "" {
		p.t.Fatalf("token create: %v: %s", err, out)
	}
	return token
}

// published returns where a service is published, and where that leads.
func (p *project) published(name string) [2]string {
	p.t.Helper()
	c := p.containers[name]
	if len(c.Ports) == 0 {
		p.t.Fatalf("%s has no ports", name)
	}
	host, port := path.Split(strings.ReplaceAll(c.Ports[0], ":", "/"))
	host = strings.Replace(strings.Trim(host, "/"), "/", ":", 1)
	return [2]string{host, net.JoinHostPort(c.address, port)}
}

func (p *project) kill(name string) {
	p.t.Helper()
	c := p.containers[name]
	if err := c.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = c.cmd.Wait() // it was killed
}

var signals = map[string]syscall.Signal{"": syscall.SIGTERM, "SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGUSR1": syscall.SIGUSR1}

// stop does what Compose does, and expects that the service ends by itself within its time.
func (p *project) stop(name string) {
	p.t.Helper()
	c := p.containers[name]
	signal, known := signals[c.StopSignal]
	if !known {
		p.t.Fatalf("%s: stop_signal %s", name, c.StopSignal)
	}
	if err := c.cmd.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case err := <-ended:
		p.t.Logf("%s: ended after %v with %v", name, time.Since(began).Round(time.Millisecond), c.cmd.ProcessState)
		if err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	case <-time.After(c.StopGrace):
		p.t.Errorf("%s did not end within %v", name, c.StopGrace)
	}
}

// client asks the published port, as a program on the host does.
type client struct {
	t     *testing.T
	at    [2]string
	token string
}

func (c *client) do(token, method, route, body string, headers ...string) (*http.Response, error) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, c.at[1])
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.at[0]+route, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return transport.RoundTrip(req)
}

// ask returns the body of a successful answer, and a header of it.
func (c *client) ask(token, method, route, body string, headers ...string) (string, http.Header) {
	c.t.Helper()
	res, err := c.do(token, method, route, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode/100 != 2 {
		c.t.Fatalf("%s %s: %s, %v: %s", method, route, res.Status, err, text)
	}
	return string(text), res.Header
}

// works makes one move over REST, which an event stream shows at once, and one over MCP in a session.
func (c *client) works(token string) {
	c.t.Helper()
	stream, err := c.do(c.token, http.MethodGet, "/v1/events", "", "Accept", "text/event-stream") //nolint:bodyclose // it is closed below
	if err != nil {
		c.t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		c.t.Fatalf("events: %s", stream.Status)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stream.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	id := c.begin(token)
	if answer, _ := c.ask(token, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"close","data":{"why":"done"}}`); !strings.Contains(answer, `"closed"`) {
		c.t.Fatal(answer)
	}
	for late := time.After(5 * time.Second); ; {
		select {
		case line, open := <-lines:
			if open && (!strings.HasPrefix(line, "data: ") || !strings.Contains(line, id) || !strings.Contains(line, `"advanced"`)) {
				continue
			}
			if !open {
				c.t.Fatal("the stream ended before the move")
			}
		case <-late:
			c.t.Fatal("the stream does not show the move: is it buffered?")
		}
		break
	}

	accept := []string{"Accept", "application/json, text/event-stream"}
	_, header := c.ask(token, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, accept...)
	accept = append(accept, "Mcp-Session-Id", header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25")
	c.ask(token, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, accept...)
	for range 4 { // each at the server that began the session
		id := c.begin(token)
		call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":%q,"action":"close","data":{"why":"done"}}}}`, id)
		if answer, _ := c.ask(token, http.MethodPost, "/mcp", call, accept...); !strings.Contains(answer, "closed") || strings.Contains(answer, `"isError":true`) {
			c.t.Fatal(answer)
		}
	}
}

func (c *client) begin(token string) string {
	c.t.Helper()
	answer, _ := c.ask(token, http.MethodPost, "/v1/instances", `{"type":"ticket"}`)
	return regexp.MustCompile(`wf-[0-9a-f-]{36}`).FindString(answer)
}

// answersDuring makes moves for a while, and fails if one gets no answer.
func (c *client) answersDuring(d time.Duration) {
	c.t.Helper()
	n := 0
	for until := time.Now().Add(d); time.Now().Before(until); n++ {
		id := c.begin(c.token)
		c.ask(c.token, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"close","data":{"why":"done"}}`)
	}
	c.t.Logf("%d moves without a replica", n)
}
