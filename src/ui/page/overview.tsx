// What does the first view show: the picture of the node, and below it the list of attachments?
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { count } from '../../lab/words.ts';
import { conditionOf, isProblem, worstFirst } from '../../node/graph/condition.ts';
import { withoutStandIns } from '../../node/shown.ts';
import { Command } from './command.tsx';
import { AttachmentList } from './list.tsx';
import { Picture } from './picture.tsx';
import type { ViewProps } from './route.ts';
import { matcherOf, textOf } from './search.ts';

/** Picture and list; the search and the switch select in both. */
export function Overview({ node, query }: ViewProps): JSX.Element {
  const [onlyProblems, setOnlyProblems] = useState(false);
  const shown = useMemo(() => {
    const matches = matcherOf(query);
    // A runtime's loopback attachment has nothing to show.
    const all = withoutStandIns(node.attachments);
    const wanted = all.filter(one => matches(textOf(one)) && (!onlyProblems || isProblem(conditionOf(one))));
    return { all: all.length, rows: worstFirst(wanted) };
  }, [node.attachments, query, onlyProblems]);
  const { all, rows } = shown;
  return (
    <>
      {(all > 0 || node.bridges.length > 0) && (
        <section aria-labelledby="picture-title">
          <h2 id="picture-title" tabIndex={-1}>
            Node
          </h2>
          <Picture node={node} shown={rows} />
        </section>
      )}
      <section aria-labelledby="list-title">
        <div class="bar">
          <h2 id="list-title">Attachments</h2>
          <p class="quiet" role="status">
            {rows.length === all ? count(all, 'attachment') : `${rows.length} of ${count(all, 'attachment')}`}
          </p>
          <label class="switch">
            <input
              type="checkbox"
              checked={onlyProblems}
              onChange={event => setOnlyProblems(event.currentTarget.checked)}
            />{' '}
            problems only
          </label>
        </div>
        {node.checkProblem !== undefined && (
          <p class="notice unsettled">CHECK could not be run: {node.checkProblem}</p>
        )}
        {node.notes.map(note => (
          <p class="notice unsettled" key={note}>
            {note}
          </p>
        ))}
        {all === 0 && <NextSteps node={node} />}
        {all > 0 && rows.length === 0 && <p class="quiet">Nothing matches.</p>}
        {rows.length > 0 && <AttachmentList rows={rows} time={node.time} />}
      </section>
    </>
  );
}

/** What a node without attachments needs: a list, or a container. */
function NextSteps({ node: { networks } }: Pick<ViewProps, 'node'>): JSX.Element {
  const configured = networks.filter(({ file }) => file !== undefined).map(({ name }) => name);
  const [first = '<network>'] = configured;
  const steps: readonly (readonly [what: string, command: string])[] =
    configured.length === 0
      ? [
          ['Answer four questions, and have a list written:', 'catena init'],
          ['See on a fake host what it does:', 'catena try <list>'],
          ['Give it to the runtimes of this node:', 'catena install <list> --as-default'],
        ]
      : [
          ['With podman:', `podman run --network ${first} -p 8080:80 <image>`],
          ['By hand, to a namespace that "ip netns add web" made:', `catena add ${first} web`],
        ];
  return (
    <>
      <p>No container is attached to a network.</p>
      <p>
        {configured.length === 0
          ? 'No list configures a network here. What comes next:'
          : `Configured: ${configured.join(', ')}. What comes next:`}
      </p>
      <ol class="steps">
        {steps.map(([what, command]) => (
          <li key={command}>
            {what} <Command text={command} />
          </li>
        ))}
      </ol>
      <p>
        <a href="#/networks">Networks</a> shows which list each runtime uses, and why.
      </p>
    </>
  );
}
