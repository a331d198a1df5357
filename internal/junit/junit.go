// Package junit writes test reports in JUnit XML, which build servers read.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
)

// Report is the whole document.
type Report struct {
	XMLName xml.Name `xml:"testsuites"`
	counts
	Time   string  `xml:"time,attr,omitempty"` // in seconds; "" if unknown
	Suites []Suite `xml:"testsuite"`
}

// Suite is a list of cases.
type Suite struct {
	Name string `xml:"name,attr"`
	File string `xml:"file,attr,omitempty"`
	counts
	Time  string `xml:"time,attr,omitempty"`
	Cases []Case `xml:"testcase"`
}

// Case is one test case. It passed if Failure, Error and Skipped are all nil.
type Case struct {
	Name    string `xml:"name,attr"`
	Class   string `xml:"classname,attr"`
	File    string `xml:"file,attr,omitempty"`
	Line    int    `xml:"line,attr,omitempty"`
	Time    string `xml:"time,attr,omitempty"`
	Failure *Words `xml:"failure"`
	Error   *Words `xml:"error"`
	Skipped *Words `xml:"skipped"`
}

// Words describe the result of a case.
type Words struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type counts struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
}

func (c *counts) add(item Case) {
	c.Tests++
	switch {
	case item.Failure != nil:
		c.Failures++
	case item.Error != nil:
		c.Errors++
	case item.Skipped != nil:
		c.Skipped++
	}
}

// Write sets the counts of a report and writes it. Characters that XML cannot represent are replaced.
func Write(w io.Writer, r Report) error {
	for i := range r.Suites {
		s := &r.Suites[i]
		s.counts = counts{}
		for _, c := range s.Cases {
			s.add(c)
			r.add(c)
		}
	}
	text, err := xml.MarshalIndent(r, "", " ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	if err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	return nil
}
