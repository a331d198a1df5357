package agent

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// NewUse converts an event to the form that gates use. script is the parsed command. If the names in the
// event were not looked up (Places is empty), they are used as written.
func NewUse(e Event, script shell.Script) gate.Use {
	u := gate.Use{Tool: e.Builtin, Script: script, URL: e.URL, Working: cleanPath(e.Folder), Home: e.Places.Home, Named: e.Places.Files}
	for _, folder := range []string{e.project(), e.Folder} {
		project := e.projectAt(folder)
		for _, root := range append([]string{project.Root}, project.Around...) {
			if !slices.Contains(u.Folders, root) {
				u.Folders = append(u.Folders, root)
			}
		}
	}
	for _, name := range e.Paths {
		u.Paths = append(u.Paths, u.PathsOf(name)...)
	}
	return u
}

// projectAt returns the project of a folder as it was looked up, or the folder itself.
func (e Event) projectAt(folder string) Project {
	folder = cleanPath(folder)
	if p, ok := e.Places.Projects[folder]; ok {
		return p
	}
	return Project{Root: folder}
}

// isInside reports whether folder is outer or inside it.
func isInside(folder, outer string) bool {
	return strings.HasPrefix(strings.TrimSuffix(folder, "/")+"/", strings.TrimSuffix(outer, "/")+"/")
}

// site is where a use acts. It lists the possible subjects of the use's workflow, outermost first. A new instance
// gets the last one.
type site struct {
	subjects []string
	// elsewhere is the folder outside the session's project, or "". If nearest is set, the innermost
	// instance counts, otherwise the oldest. An agent therefore cannot leave a workflow by creating a
	// repository inside or around it.
	elsewhere string
	nearest   bool
}

// homeSite returns the site of the session's own project.
func (d *decision) homeSite() site {
	if d.rules.Hooks.Instance == gate.InstanceSession {
		return site{subjects: []string{"session:" + d.Client + ":" + d.Session}}
	}
	return siteOf(d.projectAt(d.project()))
}

func siteOf(p Project) (s site) {
	for _, folder := range slices.Backward(append([]string{p.Root}, p.Around...)) {
		s.subjects = append(s.subjects, "folder:"+folder)
	}
	return s
}

// siteAt returns the site of a folder in which a use acts.
func (d *decision) siteAt(folder string) site {
	home := d.homeSite()
	if d.rules.Hooks.Instance == gate.InstanceSession {
		return home
	}
	own, project := d.projectAt(d.project()), d.projectAt(folder)
	switch {
	case project.Root == own.Root, !project.Repository && isInside(project.Root, own.Root):
		return home
	case d.Places.Projects != nil:
		s := siteOf(project)
		s.elsewhere = project.Root
		return s
	}
	s := site{elsewhere: project.Root, nearest: true} // it is not known which parent folders are projects
	for at := project.Root; ; at = path.Dir(at) {
		s.subjects = slices.Insert(s.subjects, 0, "folder:"+at)
		if at == path.Dir(at) {
			return s
		}
	}
}

// siteOfMatch returns where a gated use acts, or the problem if that is not a single place.
func (d *decision) siteOfMatch(m gate.Match, script shell.Script) (s site, problem string) {
	folders := d.listFolders(m, script)
	for i, folder := range folders {
		if folder == "" {
			return s, "The folder in which this acts is unclear. Write it as a literal path."
		}
		next := d.siteAt(folder)
		if i > 0 && !slices.Equal(next.subjects, s.subjects) {
			return s, "It acts in several projects. Act in one at a time."
		}
		s = next
	}
	if len(folders) == 0 {
		return d.homeSite(), ""
	}
	return s, ""
}

// listFolders returns the folders in which a use acts: those of the gated files, or of the gated commands.
// An unknown folder is "".
func (d *decision) listFolders(m gate.Match, script shell.Script) (folders []string) {
	for _, p := range m.Anchored {
		switch {
		case len(p.Roots) > 0:
			folders = append(folders, p.Roots[0])
		case p.Roots == nil:
			folders = append(folders, path.Dir(p.Name))
		}
	}
	if len(m.Anchored) > 0 || d.Builtin != gate.BuiltinShell || m.Gate.Builtin == gate.BuiltinRead {
		return folders
	}
	for _, i := range m.Commands {
		at := script.Commands[i].Folder
		if repository := script.Commands[i].Repository; repository.Text != "" {
			at = repository
		}
		folder := ""
		if at.Known {
			folder = d.locate(at.Text, d.Places.Home)
		}
		folders = append(folders, folder)
	}
	return folders
}

// isCovered reports whether the event's credential covers a folder.
func (e Event) isCovered(folder string) bool {
	return e.Within == "" || isInside(cleanPath(folder), cleanPath(e.Within))
}

// checkSession returns why the event's credential does not cover its session, or "". It compares names, and
// for worktrees and linked folders also the names that were looked up.
func (e Event) checkSession() string {
	if e.isCovered(e.project()) || e.isCovered(e.projectAt(e.project()).Root) {
		return ""
	}
	return fmt.Sprintf("The token of this hook is for sessions in %s, and this one is in %s. Tell the person who runs you: gavel hook install %s makes a token for that folder.", e.Within, cleanPath(e.project()), e.Client)
}

// find finds the instance of a workflow at a site, or starts it. tool names, for messages, the use that needs it.
func (d *decision) find(ctx context.Context, s site, name, tool string, start bool) (engine.Position, *gate.Refusal, error) {
	own := s.subjects[len(s.subjects)-1]
	isForeign := func(subject string) bool {
		folder, ok := strings.CutPrefix(subject, "folder:")
		return ok && !d.isCovered(folder)
	}
	if isForeign(own) {
		return engine.Position{}, &gate.Refusal{
			Message: fmt.Sprintf("It acts in %s, and the token of this hook is for %s.", strings.TrimPrefix(own, "folder:"), d.Within),
			Hint:    "Run it from a session in that folder.",
		}, nil
	}
	s.subjects = slices.DeleteFunc(slices.Clone(s.subjects), isForeign)
	var found engine.Position
	for _, subject := range s.subjects {
		if len(s.subjects) == 1 {
			break
		}
		at, err := d.engine.FindSubject(ctx, d.principal, name, subject)
		switch {
		case engine.CodeOf(err) == engine.CodeUnknownInstance:
		case err != nil:
			return at, nil, err
		case s.nearest || found.ID == "" || at.ID < found.ID: // ids grow over time
			found = at
		}
	}
	if found.ID != "" {
		return found, nil, nil
	}
	at, refusal, err := gate.FindInstance(ctx, d.engine, d.principal, name, own, tool, start && !s.nearest)
	if refusal != nil && s.elsewhere != "" && !refusal.Judged {
		refusal = &gate.Refusal{
			Message: fmt.Sprintf("%s acts in %s, which has no workflow %s.", tool, s.elsewhere, name),
			Hint:    fmt.Sprintf("Start a session in that folder, or stay in %s.", d.projectAt(d.project()).Root),
		}
	}
	return at, refusal, err
}
