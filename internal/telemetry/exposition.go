package telemetry

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// contentType names the text that Prometheus reads.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// kind is what a metric is to Prometheus.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
	summary   kind = "summary"
)

// metric is a name with a value for each combination of what its labels say.
type metric struct {
	name, help string
	kind       kind
	labels     []string
	buckets    []float64 // the upper bounds, of a histogram

	mu     sync.Mutex
	series map[string]*series // by the labels as they are written: {a="1",b="2"}
}

type series struct {
	value  float64  // of a histogram, the sum
	counts []uint64 // of a histogram: of each bucket alone, the last for what is above all bounds
}

func newMetric(k kind, name, help string, labels ...string) *metric {
	return &metric{name: name, help: help, kind: k, labels: labels, series: map[string]*series{}}
}

func newHistogram(name, help string, buckets []float64, labels ...string) *metric {
	m := newMetric(histogram, name, help, labels...)
	m.buckets = buckets
	return m
}

// add adds n to the value of these labels.
func (m *metric) add(n float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seriesOf(labels).value += n
}

// observe counts a value in its bucket.
func (m *metric) observe(value float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seriesOf(labels)
	s.value += value
	bucket, _ := slices.BinarySearch(m.buckets, value)
	s.counts[bucket]++
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (m *metric) seriesOf(values []string) *series {
	var room [160]byte
	key, before := room[:0], "{"
	for i, value := range values {
		key = append(append(append(key, before...), m.labels[i]...), `="`...)
		key = append(append(key, escapeLabel.Replace(strings.ToValidUTF8(value, "\uFFFD"))...), '"')
		before = ","
	}
	if len(values) > 0 {
		key = append(key, '}')
	}
	s := m.series[string(key)]
	if s == nil {
		s = &series{}
		if m.kind == histogram {
			s.counts = make([]uint64, len(m.buckets)+1)
		}
		m.series[string(key)] = s
	}
	return s
}

var escapeHelp = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// write writes what the metric is and its values; nothing while there are none.
func (m *metric) write(b *bytes.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.labels) == 0 {
		m.seriesOf(nil) // there from the start
	}
	if len(m.series) == 0 {
		return
	}
	b.WriteString("# HELP " + m.name + " " + escapeHelp.Replace(m.help) + "\n# TYPE " + m.name + " " + string(m.kind) + "\n")
	for _, labels := range slices.Sorted(maps.Keys(m.series)) {
		if m.kind == histogram {
			m.writeHistogram(b, labels)
		} else {
			b.WriteString(m.name + labels + " " + formatValue(m.series[labels].value) + "\n")
		}
	}
}

func (m *metric) writeHistogram(b *bytes.Buffer, labels string) {
	s, inner := m.series[labels], "{"
	if labels != "" {
		inner = strings.TrimSuffix(labels, "}") + ","
	}
	var below uint64
	for i, n := range s.counts {
		below += n
		bound := math.Inf(1)
		if i < len(m.buckets) {
			bound = m.buckets[i]
		}
		b.WriteString(m.name + "_bucket" + inner + `le="` + formatValue(bound) + `"} ` + strconv.FormatUint(below, 10) + "\n")
	}
	b.WriteString(m.name + "_sum" + labels + " " + formatValue(s.value) + "\n")
	b.WriteString(m.name + "_count" + labels + " " + strconv.FormatUint(below, 10) + "\n")
}

func formatValue(v float64) string {
	return strconv.FormatFloat(v, 'g', -1, 64) // +Inf, -Inf and NaN as Prometheus has them
}

// page are the metrics of one answer, by name.
type page map[string]*metric

// tell adds a value that somebody else keeps; labels are names and values in turn.
func (p page) tell(name, help string, k kind, value float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m := p[name]
	if m == nil {
		m = newMetric(k, name, help, names...)
		p[name] = m
	}
	m.add(value, values...)
}

func (p page) text() []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(p)) {
		p[name].write(&b)
	}
	return b.Bytes()
}
