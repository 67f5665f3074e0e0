// What does a JUnit report, as written by Bun and Node, say about each test?

/** One test's outcome; `reason` only for skipped ones. */
export interface TestOutcome {
  readonly title: string;
  /** Path of its file, as Bun writes it; otherwise empty. */
  readonly file: string;
  readonly status: 'passed' | 'failed' | 'skipped';
  readonly reason?: string;
}

/** Reads the outcomes from a report. A title may contain its own reason: `title [skipped: reason]`. */
export function parseJunit(xml: string): TestOutcome[] {
  return [...xml.matchAll(/<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g)].map(match => {
    const title = attribute(match[1], 'name');
    const group = attribute(match[1], 'classname');
    const file = attribute(match[1], 'file').replace(/^\.\//, '');
    const body = match[2] ?? '';
    if (/<(failure|error)\b/.test(body)) return { title, file, status: 'failed' };
    const skipped = /<skipped\b([^>]*)>/.exec(body);
    if (!skipped) return { title, file, status: 'passed' };
    const named = /\[skipped: (.*?)\](?: >|$)/;
    const inTitle = named.exec(title) ?? named.exec(group);
    const reason = inTitle?.[1] ?? (attribute(skipped[1], 'message') || 'no reason given');
    return { title: title.replace(named, '').trim(), file, status: 'skipped', reason };
  });
}

function attribute(attributes: string | undefined, name: string): string {
  const value = new RegExp(`\\b${name}="([^"]*)"`).exec(attributes ?? '')?.[1] ?? '';
  const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };
  return value.replace(/&(lt|gt|quot|apos|amp);/g, (_, entity) => entities[entity] ?? '');
}
