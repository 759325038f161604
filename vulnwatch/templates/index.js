// The filter of the table. Without it the table is whole.
"use strict";
(() => {
	const names = ["q", "show", "severity", "order"]; // what the address keeps
	const page = 300; // rows that are laid out before somebody asks for all
	const form = document.getElementById("find"), body = document.getElementById("rows");
	const more = document.getElementById("more"), none = document.getElementById("none");
	const rows = Array.from(body.rows, (tr, at) => ({
		tr, at, flags: tr.dataset.f.split(" "), s: +tr.dataset.s, d: tr.dataset.d || "", t: tr.dataset.t || "", text: null,
	}));
	let limit = page, order = "", timer;

	const sorted = () => {
		const by = form.order.value;
		if (by === order) return;
		order = by;
		rows.sort((a, b) => by && a[by] !== b[by] ? (a[by] < b[by] ? 1 : -1) : a.at - b.at);
		body.replaceChildren(...rows.map(r => r.tr));
	};
	const update = () => {
		const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
		const show = form.show.value, least = +form.severity.value;
		let fit = 0, shown = 0;
		sorted();
		for (const r of rows) {
			if (words.length && r.text === null) r.text = r.tr.textContent.toLowerCase();
			const fits = (!show || r.flags.includes(show)) && (least < 0 || r.s >= least) && words.every(w => r.text.includes(w));
			if (fits) fit++;
			const visible = fits && shown < limit;
			if (visible) shown++;
			if (r.tr.hidden === visible) r.tr.hidden = !visible;
		}
		form.count.value = (shown < fit ? "first " + shown + " of " : "") + (fit < rows.length ? fit + " of " : "") + rows.length + " CVEs";
		more.hidden = shown === fit;
		none.hidden = fit > 0;
	};
	const keep = () => {
		const p = new URLSearchParams();
		for (const name of names) {
			const e = form[name], plain = e.options ? e.options[0].value : "";
			if (e.value !== plain) p.set(name, e.value);
		}
		history.replaceState(null, "", "#" + p);
	};
	const soon = () => {
		clearTimeout(timer);
		timer = setTimeout(() => { limit = page; update(); keep(); }, 120);
	};
	const recall = () => {
		const p = new URLSearchParams(location.hash.slice(1));
		for (const name of names) {
			const e = form[name], value = p.get(name);
			if (value !== null && (!e.options || Array.from(e.options).some(o => o.value === value))) e.value = value;
		}
	};

	form.addEventListener("input", soon);
	form.addEventListener("submit", e => { e.preventDefault(); soon(); });
	more.firstElementChild.addEventListener("click", () => { limit = Infinity; update(); });
	addEventListener("beforeprint", () => { limit = Infinity; update(); });
	addEventListener("pageshow", update); // a browser may have put old values into the form
	form.hidden = false;
	recall();
	update();
})();
