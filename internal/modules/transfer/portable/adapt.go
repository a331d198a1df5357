package portable

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// examine reads a definition as it will be defined. An invalid definition is adapted if that makes it
// valid; the warnings in out describe the changes.
func (im *importer) examine(ctx context.Context, in Definition, out *DefinitionReport) (engine.DefineRequest, *workflow.Definition, error) {
	req := engine.DefineRequest{Source: in.File, Document: in.Document}
	d, invalid, err := im.examineDocument(ctx, req)
	if d != nil || err != nil {
		return req, d, err
	}
	adapted, changes := workflow.Adapt(in.File, in.Document)
	names := []string{out.Name}
	if out.Name != "" && !workflow.IsName(out.Name) {
		names = workflow.SuggestNames(out.Name)
	}
	if len(changes) == 0 && len(names) == 1 && names[0] == out.Name {
		out.Issues = invalid
		return req, nil, refuseIssues(invalid)
	}
	for i, name := range names {
		if name == out.Name {
			req.Document = adapted
		} else {
			req.Document = describeDraft(withName(adapted, name), out.Name)
		}
		if d, invalid, err = im.examineDocument(ctx, req); err != nil {
			return req, nil, err
		}
		if d == nil {
			workflow.Relocate(invalid, in.File, in.Document)
			out.Issues = invalid
			return req, nil, refuseIssues(invalid)
		}
		isFree, err := im.isNameFree(ctx, d, out.Name)
		if err != nil {
			return req, nil, err
		}
		if isFree || i == len(names)-1 {
			break
		}
	}
	if d.Name != out.Name {
		renamed := []workflow.Issue{{
			Rule: "value", Severity: workflow.SeverityWarning, Path: "/name",
			Message: fmt.Sprintf("%.200q is not a valid workflow name: it is imported as %q", out.Name, d.Name),
		}}
		workflow.Relocate(renamed, in.File, in.Document)
		changes = append(renamed, changes...)
	}
	im.usedNames[d.Name] = out.Name
	out.Issues = changes
	return req, d, nil
}

// setAside stores a rejected definition so that its instance can be kept; everything that its errors
// affect is disabled. If that is not possible, the definition stays rejected.
func (im *importer) setAside(ctx context.Context, refused *refusedDefinition) error {
	report := &im.definitions[refused.index]
	for _, whole := range []bool{false, true} {
		out := DefinitionReport{File: refused.File, Name: report.Name}
		doc := workflow.SetAside(refused.File, refused.Document, report.Issues, whole)
		if len(report.Issues) == 0 || doc == nil {
			continue
		}
		_, err := splitReason(im.storeRenamed(ctx, Definition{File: refused.File, Document: doc}, &out))
		if err != nil {
			return err
		}
		if out.Hash != "" {
			workflow.Relocate(out.Issues, refused.File, refused.Document)
			out.Status, out.Issues = SetAside, append(report.Issues, out.Issues...)
			out.Reason = "kept for its instances; moves that its errors affect are refused. Fix it, import it again, and migrate them (gavel migrate)"
			*report = out
			return nil
		}
	}
	return nil
}

// storeRenamed stores a changed definition, unless the store has a different one of that name.
func (im *importer) storeRenamed(ctx context.Context, in Definition, out *DefinitionReport) error {
	req, d, err := im.examine(ctx, in, out)
	if err != nil {
		return err
	}
	_, kept, err := im.rename(req, d)
	if err != nil {
		return err
	}
	other, err := im.findVersion(ctx, kept.Name, "")
	if err != nil || other.def != nil && other.stored.Hash != kept.Hash {
		return err
	}
	return im.keep(ctx, req, d, out)
}

// examineDocument returns the definition, or its problems.
func (im *importer) examineDocument(ctx context.Context, req engine.DefineRequest) (*workflow.Definition, []workflow.Issue, error) {
	d, _, err := im.e.ExamineDefinition(ctx, im.owner, req)
	if invalid, ok := errors.AsType[*engine.Error](err); ok && invalid.Code == engine.CodeInvalidDefinition {
		return nil, invalid.Issues, nil
	}
	return d, nil, err
}

func refuseIssues(issues []workflow.Issue) error {
	return fmt.Errorf("the definition is not valid: %s", issues[0])
}

// isNameFree reports whether a definition can have a changed name: no other definition, in the folder or in the store,
// has that name.
func (im *importer) isNameFree(ctx context.Context, d *workflow.Definition, was string) (bool, error) {
	if other, taken := im.usedNames[d.Name]; taken {
		return other == was, nil
	}
	if im.req.Rename != "" {
		return true, nil
	}
	v, err := im.findVersion(ctx, d.Name, "")
	return v.def == nil || v.stored.Hash == d.Hash, err
}

func withName(doc []byte, name string) []byte {
	fields := membersOf(doc)
	fields["name"] = quoteJSON(name)
	return encodeObject(fields)
}

// describeDraft adds the original name of a workflow to its description, so that people can find it.
func describeDraft(doc []byte, name string) []byte {
	fields := membersOf(doc)
	description := document.ReadTrusted(fields["description"]).Text()
	switch {
	case description == "":
		description = name
	case !strings.Contains(description, name):
		description = name + ": " + description
	}
	fields["description"] = quoteJSON(description)
	return encodeObject(fields)
}
