// Is what a watch says what the server has, whatever happens to the connection?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openApiServer } from '../../../src/delegate/api-server.ts';
import { WATCH_LIMITS, type WatchedObjects, watchObjects } from '../../../src/delegate/object-watch.ts';

import { watchClusters } from '../../../src/delegate/watched-clusters.ts';
import { type ApiServer, startApiServer } from '../../helpers/kubernetes.ts';
import { describeNeeding, requires } from '../../helpers/skip.ts';
import { until } from '../../helpers/until.ts';

const PATH = 'apis/k8s.cni.cncf.io/v1/network-attachment-definitions';
/** Tests do not wait. */
const QUICK = { ...WATCH_LIMITS, backoffMs: { first: 1, last: 20 }, catchUpMs: 0 };

describeNeeding(
  'watchObjects()',
  () => {
    let dir: string;
    let api: ApiServer;
    let problems: string[];
    const open: WatchedObjects<unknown>[] = [];
    beforeEach(async () => {
      dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-watch-'));
      api = await startApiServer(dir);
      problems = [];
    });
    afterEach(async () => {
      for (const watched of open.splice(0)) watched.close();
      await api.close();
      fs.rmSync(dir, { recursive: true });
    });

    function begin(limits: Partial<typeof QUICK> = {}): WatchedObjects<string> {
      const server = openApiServer({ kubeconfig: api.kubeconfig, timeoutMs: 5_000 });
      const keep = ({ spec }: { spec?: { config?: string } }) => spec?.config;
      const onProblem = ({ message }: Error) => void problems.push(message);
      const watched = watchObjects<string>(server, { path: PATH, keep }, onProblem, { ...QUICK, ...limits });
      open.push(watched);
      return watched;
    }

    const fresh = (watched: WatchedObjects<string>) => until(() => watched.isFresh);
    const asked = (query: string) => api.requests.filter(request => request.path.includes(query)).length;
    const lists = () => asked('limit=');

    test('no verb waits for events, which are sent in turn, those after one that fails as well', async () => {
      const untold: unknown[] = [];
      const clusters = watchClusters({
        ...{ nodeName: undefined, limits: QUICK },
        onProblem: () => {},
        onUntold: problem => void untold.push(problem),
      });
      const cluster = clusters.open({ kubeconfig: api.kubeconfig, timeoutMs: 5_000 });
      const said = (name: string) => ({ metadata: { namespace: 'ns', name } });
      api.answer('hang');
      for (const name of ['one', 'two', 'three']) await cluster.addEvent('ns', said(name));
      await until(() => asked('/events') === 1);
      api.answer(undefined);
      await until(() => api.events('ns').length === 2, { withinMs: 20_000 });
      expect(api.events('ns').map(({ metadata }) => metadata.name)).toEqual(['two', 'three']);
      expect(untold).toHaveLength(1);
      clusters.close();
    });

    test('sees existing, new, changed and deleted objects with a single list', async () => {
      api.addDefinition('ns', 'old', 'one');
      const watched = begin();
      expect(watched.find('ns', 'old')).toBeUndefined();
      await fresh(watched);
      expect(watched.find('ns', 'old')).toBe('one');
      api.addDefinition('ns', 'new', 'two');
      api.addDefinition('other', 'old', 'three');
      await until(() => watched.find('ns', 'new') === 'two' && watched.find('other', 'old') === 'three');
      api.addDefinition('ns', 'old', 'changed');
      await until(() => watched.find('ns', 'old') === 'changed');
      api.removeDefinition('ns', 'old');
      await until(() => watched.find('ns', 'old') === undefined);
      expect(watched.find('other', 'old')).toBe('three');
      expect({ lists: lists(), problems }).toEqual({ lists: 1, problems: [] });
    });

    test('reads a list of many pages', async () => {
      for (let i = 0; i < 1_100; i++) api.addDefinition('ns', `net-${i}`, `config ${i}`);
      const watched = begin();
      await fresh(watched);
      expect([0, 499, 500, 1_099].map(i => watched.find('ns', `net-${i}`))).toEqual(
        [0, 499, 500, 1_099].map(i => `config ${i}`),
      );
      expect(lists()).toBe(3);
    });

    test('reads pages of fewer objects where one writer has made them as large as it may', async () => {
      for (let i = 0; i < 90; i++) api.addDefinition('ns', `large-${i}`, 'x'.repeat(256 * 1024));
      for (let i = 0; i < 700; i++) api.addDefinition('ns', `net-${i}`, `config ${i}`);
      const watched = begin({ characters: 64 * 1024 * 1024 });
      await fresh(watched);
      expect(watched.find('ns', 'large-89')).toHaveLength(256 * 1024);
      expect(watched.find('ns', 'net-699')).toBe('config 699');
      expect(problems).toEqual([]);
      // Later pages are as long as usual.
      expect(lists()).toBeLessThan(12);
    });

    test('continues from its bookmark after a disconnect, and is not fresh in between', async () => {
      api.addDefinition('ns', 'net', 'one');
      const watched = begin({ backoffMs: { first: 200, last: 200 } });
      await fresh(watched);
      api.collections.compact();
      api.collections.bookmark();
      await Bun.sleep(100);
      api.collections.cut();
      api.addDefinition('ns', 'net', 'two');
      await until(() => watched.find('ns', 'net') === 'two');
      // Once more: what comes after the first attempt waits.
      api.collections.cut();
      await until(() => !watched.isFresh);
      expect(watched.find('ns', 'net')).toBeUndefined();
      await fresh(watched);
      expect(watched.find('ns', 'net')).toBe('two');
      expect(lists()).toBe(1);
    });

    test('lists again when the server has forgotten its position', async () => {
      api.addDefinition('ns', 'net', 'one');
      api.addDefinition('ns', 'gone', 'one');
      const watched = begin();
      await fresh(watched);
      api.answer(503);
      api.collections.cut();
      await until(() => problems.length > 0);
      api.removeDefinition('ns', 'gone');
      api.addDefinition('ns', 'net', 'two');
      api.collections.compact();
      api.answer(undefined);
      await until(() => watched.find('ns', 'net') === 'two');
      expect({ gone: watched.find('ns', 'gone'), lists: lists() }).toEqual({ gone: undefined, lists: 2 });
    });

    test('reconnects to a silent server', async () => {
      api.addDefinition('ns', 'net', 'one');
      const watched = begin({ silenceMs: 300 });
      await fresh(watched);
      const before = asked('watch=true');
      api.collections.mute();
      api.addDefinition('ns', 'net', 'two');
      await until(() => asked('watch=true') > before);
      expect(problems).toEqual([]);
    });

    test.each([
      ['no JSON', '{"type":'],
      ['no object', '{"type":"ADDED"}'],
      ['an error', '{"type":"ERROR","object":{"code":500,"message":"etcd"}}'],
    ])('reconnects after an event that is %s', async (_, line) => {
      api.addDefinition('ns', 'net', 'one');
      const watched = begin();
      await fresh(watched);
      const before = asked('watch=true');
      api.collections.say(line);
      await until(() => asked('watch=true') > before);
      await fresh(watched);
      expect(watched.find('ns', 'net')).toBe('one');
      expect(problems).toHaveLength(1);
    });

    test.each<[string, number | 'hang']>([
      ['refuses', 403],
      ['is busy', 503],
      ['does not answer', 'hang'],
    ])('reports once that the server %s, and retries until it succeeds', async (_, how) => {
      api.answer(how);
      api.addDefinition('ns', 'net', 'one');
      // A refusal that a busy machine delivers late would be a second problem.
      const timeoutMs = how === 'hang' ? 100 : 5_000;
      const server = openApiServer({ kubeconfig: api.kubeconfig, timeoutMs });
      const kind = { path: PATH, keep: () => 'kept' };
      const watched = watchObjects(server, kind, ({ message }) => void problems.push(message), QUICK);
      open.push(watched);
      await until(() => api.requests.length > 3);
      expect(problems).toHaveLength(1);
      expect(watched.isFresh).toBe(false);
      api.answer(undefined);
      await until(() => watched.isFresh);
      expect(watched.find('ns', 'net')).toBe('kept');
    });

    test('keeps a limited amount; objects beyond it are requested', async () => {
      for (let i = 0; i < 5; i++) api.addDefinition('ns', `net-${i}`, 'x'.repeat(50));
      const few = begin({ objects: 3 });
      const small = begin({ characters: 110 });
      await Promise.all([fresh(few), fresh(small)]);
      const known = (watched: WatchedObjects<string>) =>
        [0, 1, 2, 3, 4].filter(i => watched.find('ns', `net-${i}`) !== undefined);
      expect([known(few), known(small)]).toEqual([
        [0, 1, 2],
        [0, 1],
      ]);
      api.removeDefinition('ns', 'net-0');
      await until(() => known(few).length === 2);
      api.addDefinition('ns', 'net-3', 'short');
      await until(() => known(few).includes(3));
    });

    test('close() ends the connection for good', async () => {
      const watched = begin();
      await until(() => api.collections.open === 1);
      watched.close();
      await until(() => api.collections.open === 0);
      const before = api.requests.length;
      await Bun.sleep(100);
      expect({ requests: api.requests.length, isFresh: watched.isFresh }).toEqual({
        requests: before,
        isFresh: false,
      });
    });
  },
  requires('openssl'),
);
