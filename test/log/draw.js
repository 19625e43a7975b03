// Runs the script of a report.html in a document that only notes what is drawn, and presses each of its buttons. Prints
// what stands in the charts at first and after each press, behind `== BUTTON`, and what the pointer shows. Fails if an
// attribute is not a number where one is meant.
// usage: node draw.js report.html
'use strict';
const page = require('fs').readFileSync(process.argv[2], 'utf8');
const script = page.match(/<script>([^]*)<\/script>/)[1];

class Node {
    constructor(name) { Object.assign(this, { name, attributes: {}, children: [], listeners: {}, style: {} }); }
    setAttribute(key, value) {
        if (/NaN|Infinity|undefined|null/.test(value)) { throw new Error(this.name + ' ' + key + '="' + value + '"'); }
        this.attributes[key] = String(value);
    }
    getAttribute(key) { return this.attributes[key]; }
    removeAttribute(key) { delete this.attributes[key]; }
    append(...nodes) { this.children.push(...nodes); }
    replaceChildren(...nodes) { this.children = nodes; }
    addEventListener(type, listener) { this.listeners[type] = listener; }
    getBoundingClientRect() { return { left: 0, width: 1120 }; }
    all() { return [this, ...this.children.flatMap(child => child.all ? child.all() : [])]; }
}

const nodes = { charts: new Node('div'), switches: new Node('p'), tip: new Node('div') };
const names = (page.match(/<tbody>[^]*?<\/tbody>/) || [''])[0].match(/<\/i>[^<]*<\/th>/g) || [];
const document = {
    createElementNS: (space, name) => new Node(name),
    getElementById: id => nodes[id],
    querySelectorAll: () => names.map(name => ({ textContent: name.slice(4, -5) })) };
new Function('document', 'addEventListener', 'getComputedStyle', 'innerWidth', script)(
    document, () => {}, () => ({ color: 'red' }), 1280);

// Prints what is drawn and, of each plot, what is shown at 500 of 1120 pixels.
function print() {
    console.log(nodes.charts.all().filter(node => node.name === 'path' || node.textContent)
        .map(node => [node.name, node.attributes.class || '', node.attributes.d || '', node.textContent].join('|'))
        .join('\n'));
    for (const plot of nodes.charts.all().filter(node => node.listeners.pointermove)) {
        plot.listeners.pointermove({ clientX: 500, clientY: 100 });
        console.log('tip|' + nodes.tip.children.map(child => child.textContent || child).join('|'));
    }
}

print();
for (let i = 0; i < nodes.switches.children.length; i++) { // the buttons are made anew by each press
    const button = nodes.switches.children[i];
    if (!button.listeners) { continue; }
    console.log('== ' + button.textContent);
    button.listeners.click();
    print();
}
