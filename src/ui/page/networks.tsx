// Which lists does this node have, which of them does each runtime use, and why?
import type { JSX } from 'preact';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { Command, Sign } from './badge.tsx';
import { usePolled } from './polling.ts';
import type { ViewProps } from './route.ts';
import { matcherOf } from './search.ts';
import { type Column, Table } from './table.tsx';

const EVERY_MS = 15_000;

type Files = AnswerOf<'NetworkFiles'>;
type File = Files['files'][number];

/** The runtimes first, then each file with what the runtimes make of it. */
export function Networks({ node, query }: ViewProps): JSX.Element {
  const { value, problem } = usePolled<Files>('networks', EVERY_MS);
  const matches = matcherOf(query);
  const files =
    value?.files.filter(one => matches(`${one.name} ${one.network} ${one.plugins?.join(' ')}`)) ?? [];
  return (
    <section aria-labelledby="networks-title">
      <h2 id="networks-title" tabIndex={-1}>
        Networks and runtimes
      </h2>
      {problem !== undefined && <p class="notice broken">{problem}</p>}
      {value === undefined && problem === undefined && <p class="quiet">Reading …</p>}
      {value !== undefined && (
        <>
          <Runtimes value={value} />
          <h3>Files in {value.confDir}</h3>
          {files.length === 0 ? (
            <p class="quiet">{value.files.length === 0 ? 'There is none.' : 'None matches.'}</p>
          ) : (
            <Table<File>
              caption="Files and what each runtime makes of them"
              rows={files}
              keyOf={one => one.path}
              classOf={({ broken, unusable }) => ((broken ?? unusable) ? 'broken' : '')}
              columns={columnsFor(node.networks)}
              below={one => <Verdicts file={one} runtimes={value.runtimes} />}
            />
          )}
        </>
      )}
    </section>
  );
}

/** The list that wins, for each of them. */
function Runtimes({ value: { runtimes, files, notes } }: { readonly value: Files }): JSX.Element {
  const nameOf = (file: string): string => files.find(({ name }) => name === file)?.network ?? file;
  return (
    <>
      <dl class="facts">
        {runtimes.map(({ runtime, files: used, problem }) => (
          <div key={runtime}>
            <dt>{runtime} attaches containers to</dt>
            <dd>
              <strong>{used.map(nameOf).join(', ') || 'nothing'}</strong>
              {problem !== undefined && <div class="why">{problem}</div>}
            </dd>
          </div>
        ))}
      </dl>
      {notes.map(note => (
        <p class="notice unsettled" key={note}>
          {note}
        </p>
      ))}
      {runtimes.every(({ files: used }) => used.length === 0) && (
        <p>
          <Command text="catena install <list> --as-default" /> gives a list to all of them.
        </p>
      )}
    </>
  );
}

function columnsFor(networks: ViewProps['node']['networks']): Column<File>[] {
  return [
    { title: 'File', cell: ({ name }) => name },
    { title: 'Network', cell: ({ network }) => network },
    { title: 'Version', cell: ({ cniVersion }) => cniVersion, isNumber: true },
    { title: 'Plugins', cell: ({ plugins }) => plugins?.join(', ') },
    {
      title: 'Attachments',
      cell: ({ network }) => networks.find(({ name }) => name === network)?.attachments ?? 0,
      isNumber: true,
    },
  ];
}

function Verdicts({
  file,
  runtimes,
}: {
  readonly file: File;
  readonly runtimes: Files['runtimes'];
}): JSX.Element {
  const { name, ignored, broken, unusable } = file;
  const failure = broken ?? unusable;
  return (
    <>
      {ignored !== undefined && <div class="quiet">ignored: {ignored}</div>}
      {failure !== undefined && <div class="why">{failure}</div>}
      <ul class="changes">
        {runtimes.map(({ runtime, verdicts }) => {
          const verdict = verdicts.find(one => one.file === name);
          if (verdict === undefined) return null;
          return (
            <li key={runtime}>
              {verdict.used ? (
                <Sign look="sound" sign="✓" word="used" />
              ) : (
                <Sign look="" sign="–" word="not used" />
              )}{' '}
              <strong>{runtime}</strong>: {verdict.why}
            </li>
          );
        })}
      </ul>
    </>
  );
}
