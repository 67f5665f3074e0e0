// How is a text made of a file that has blanks?

/** By name: what a blank is filled with, or whether lines are wanted. */
export type Blanks = Readonly<Record<string, string | boolean>>;

/** Fills `{{name}}`. A line that begins with `{{if name or other}}` is left out unless there is something of one of the names. */
export function fillBlanks(text: string, blanks: Blanks): string {
  return text
    .replace(/^\{\{if ([\w ]+)\}\}(.*\n)/gm, (_, names: string, line: string) =>
      names.split(' or ').some(name => blanks[name]) ? line : '',
    )
    .replace(/\{\{([^}]+)\}\}/g, (blank, name: string) => String(blanks[name] ?? blank));
}
