// What does a JUnit report, as written by Bun and Node, say about each test?

/** One test's outcome; `reason` only for skipped ones. */
export interface TestOutcome {
  readonly title: string;
  readonly status: 'passed' | 'failed' | 'skipped';
  readonly reason?: string;
}

/** Reads the outcomes from a report. A title may contain its own reason: `title [skipped: reason]`. */
export function parseJunit(xml: string): TestOutcome[] {
  return [...xml.matchAll(/<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g)].map(match => {
    const title = attribute(match[1], 'name');
    const group = attribute(match[1], 'classname');
    const body = match[2] ?? '';
    if (/<(failure|error)\b/.test(body)) return { title, status: 'failed' };
    const skipped = /<skipped\b([^>]*)>/.exec(body);
    if (!skipped) return { title, status: 'passed' };
    const named = /\[skipped: (.*?)\](?: >|$)/;
    const inTitle = named.exec(title) ?? named.exec(group);
    const reason = inTitle?.[1] ?? (attribute(skipped[1], 'message') || 'no reason given');
    return { title: title.replace(named, '').trim(), status: 'skipped', reason };
  });
}

function attribute(attributes: string | undefined, name: string): string {
  const value = new RegExp(`\\b${name}="([^"]*)"`).exec(attributes ?? '')?.[1] ?? '';
  const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };
  return value.replace(/&(lt|gt|quot|apos|amp);/g, (_, entity) => entities[entity] ?? '');
}
