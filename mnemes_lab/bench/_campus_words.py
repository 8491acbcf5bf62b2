"""Vocabulary of the campus workload: people, buildings, topics, sentence and question patterns.

Everything here is invented. :data:`TOPICS` and :data:`SHARED` are written in a small line format:

* ``= label | code prefix | building | shared attributes`` starts a topic; an empty prefix means
  that its things are people, known by name.
* ``n`` things (``word/other word``; questions also use the other word), ``a`` qualities, ``t``
  tails. A line that starts with blanks continues the one before.
* ``* attribute | values | namespace | validity`` starts an attribute. Values are a list, or one of
  ``@person @room @date @slot @phone`` or ``@num low high unit``. Validity ``term`` or ``since``
  gives the statement an interval.
* ``-`` statements and ``?`` questions, separated by bars; ``{s}`` is the thing, ``{o}`` the value.

Questions avoid the words of the statements where English allows it.

Example:
    >>> first = topics()[0]
    >>> first.label, first.prefix, len(topics())
    ('chemistry bench', 'CH', 18)
    >>> first.attributes[-1].questions[0]
    'How hot does {s} get while in use?'
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

GIVEN = """Ada Aino Aylin Amara Anselm Beatriz Bruno Chidi Clara Dagny Darius Edda Elif Emeka Farida
Fenna Gideon Greta Hana Henrik Ilse Imani Ines Ivo Jamila Jonas Kaito Katya Kofi Lena Leyla Liam
Lucía Maarten Malik Mira Nadia Niels Noor Odile Olga Oscar Paloma Petra Quentin Rafael Ravi Rosa
Sanna Selim Sigrid Simon Tamar Tomasz Uma Valentin Vera Wanda Wei Xenia Yara Yusuf Zahra Zoë"""

FAMILY = """
Abara Achterberg Adeyemi Albrecht Andersen Aslan Barros Bergström Bianchi Calloway Castillo
Chaudhry Cohen Dahl Demir Dvorak Eriksen Faber Farouk Ferreira Fontaine Galanis Gruber Haddad Hakimi
Hartmann Horvat Ibekwe Ivanova Jansen Jarvis Kaplan Keller Kimura Kowalski Lindqvist Lombardi Marek
Mbeki Mendes Moreau Mwangi Nakamura Novak Nyberg Obi Okafor Oliveira Osei Park Pereira Petrov Quist
Ramírez Reyes Ritter Rossi Sadik Sandoval Schreiber Sharma Sørensen Takeda Tanaka Ueda Varga Vogel
Wagner Weiss Winther Yilmaz Zanetti Zhou Ziegler"""

LEADS = """
According to the list, | Reminder: | Please note that | {p} says that | As agreed on {d}, | Noted on
{d}: | As {p} wrote on {d}, | The notice board says that | For the record, | Just heard that |
Good to know: | {p} confirmed that | From the minutes of {d}: | As far as {p} remembers,"""

SHARED = """
* place | @room | places | since
- {s} is kept in {o} | you will find {s} in {o} | {s} has its spot in {o}
? Where is {s} located? | Which door do I knock on to get {s}? | Whereabouts does one look for {s}?
* keeper | @person | people | since
- {o} looks after {s} | {s} is in the care of {o} | {s} is entrusted to {o}
? Who is responsible for {s}? | Whom should I contact about {s}?
* price | @num 240 9800 euros | costs
- {s} was bought for {o} | {o} was paid for {s} | the invoice for {s} came to {o}
? How expensive was {s}? | What did {s} cost when it was new?
* dealer | Halden & Sons, Brightwater Supply, Ostrava Instruments, Marlow Trading, Pinecrest Depot,
  Kestrel Wholesale, Fjord Technical, Amberline, Two Rivers Outfitters, Corvid Industries | costs
- {s} came from {o} | {o} delivered {s} | {s} was ordered at {o}
? Which company sold us {s}? | From which vendor did we get {s}?
* check | @date | dates
- {s} goes in for inspection on {o} | the next check-up of {s} falls on {o} |
  the inspector will see {s} on {o}
? When is {s} due for maintenance? | What is the upcoming servicing appointment of {s}?
* return | @date | dates
- {s} is on loan until {o} | the borrower brings {s} back by {o} | the loan of {s} ends on {o}
? When should we expect {s} to be returned? | On which day do we get {s} again?
* leader | @person | people | term
- {o} leads {s} | {s} is organised by {o} | {s} is in the hands of {o}
? Who runs {s}? | Which person is in charge of {s}?
* venue | @room | places | term
- {s} takes place in {o} | {s} happens in {o} | come to {o} for {s}
? Where do people gather for {s}? | What location was booked for {s}?
* hour | @slot | dates | term
- {s} begins on {o} | the regular slot of {s} is on {o} | {s} is down for {o}
? At what time does {s} start? | Which weekday and hour has {s}?
* deadline | @date | dates
- registration for {s} closes on {o} | {o} is the last day to sign up for {s} |
  names for {s} are taken until {o}
? Until when can I enrol in {s}? | What is the cut-off for joining {s}?
* fee | @num 4 180 euros | costs
- admission to {s} is {o} | each person pays {o} for {s} | the fee of {s} was set at {o}
? How much money do I need to join {s}? | What is charged for {s}?
* phone | @phone | people
- {s} can be reached at {o} | {s} answers at {o} | calls for {s} go to {o}
? What number do I dial to talk to {s}? | How do I ring up {s}?
* mentor | @person | people | term
- {o} mentors {s} | {s} reports to {o} | {s} was assigned to {o}
? Who is the supervisor of {s}? | Whose guidance does {s} get?
"""

TOPICS = """
= chemistry bench | CH | Curie Building | place keeper price dealer check return
n rotary evaporator/solvent stripper, freeze dryer/lyophiliser, fume hood/extraction cabinet,
  titration stand/burette rack, glove box/inert chamber, vacuum oven/drying cabinet, pH meter,
  stirring plate/magnetic mixer, reflux column, balance/precision scale, water bath, autoclave
a dented, noisy, brand-new, borrowed, leaky, oversized, repaired, grey, old, recalibrated, two-litre
t of the polymer group, of the catalysis group, from the Uppsala exchange, with the cracked lid,
  of the first-year practical, with the yellow sticker, from the closed annex, of the dye project
* solvent | toluene, hexane, isopropanol, ethyl acetate, acetone, dilute nitric acid | notes
- {s} must be rinsed with {o} after every run | before storage {s} is flushed with {o}
? Which liquid cleans {s}? | What do I wash {s} out with?
* heat | @num 35 240 degrees | notes
- {s} works best at {o} | nobody should take {s} above {o}
? How hot does {s} get while in use? | To what temperature should I set {s}?
= laser table | LX | Hertz Building | place keeper price dealer check return
n argon laser/ion laser, beam splitter/semi-silvered mirror, spectrometer/line analyser,
  interferometer/fringe bench, photodiode array/light sensor, vacuum pump/roughing pump,
  optical chopper/beam interrupter, cryostat/helium cooler, oscilloscope/signal viewer, etalon
a misaligned, pulsed, tunable, infrared, spare, blue, temperamental, shielded, Danish, high-power
t of the quantum group, of the plasma team, on the floating table, from the Delft shipment,
  of the thesis corner, with the taped cable, from the old cyclotron hall, of the lidar project
* wavelength | @num 380 1550 nanometres | notes
- {s} is tuned to {o} | the log book gives {o} as the setting of {s}
? At which colour or line does {s} operate? | What wavelength is {s} adjusted for?
* goggles | orange, deep red, smoky green, violet, mirrored, amber | notes
- people next to {s} wear {o} goggles | {s} may be used with {o} goggles only
? What eye protection is needed around {s}? | Which glasses do I put on beside {s}?
= cell culture room | MC | Linnaeus Building | place keeper price dealer check return
n confocal microscope/laser scanning microscope, incubator/warming cabinet, centrifuge/spinner,
  electroporator/pulse device, plate reader/absorbance reader, thermocycler/PCR machine,
  microtome/tissue slicer, cryo tank/nitrogen dewar, flow hood/sterile bench, gel imager
a humid, inverted, benchtop, refrigerated, donated, wobbly, upgraded, white, automatic, slow
t of the zebrafish group, of the yeast group, with the foggy window, from the hospital sale,
  of the moss ecology group, next to the cold room, of the immunology course, with the new lamp
* culture | HeLa cells, fission yeast, moss spores, zebrafish embryos, E. coli, nerve cells | notes
- {s} is reserved for {o} | this month {s} holds {o}
? What organism is processed with {s}? | Which sample type is {s} set aside for?
* cycle | @num 4 95 minutes | dates
- one run of {s} takes {o} | {s} needs {o} for a round
? How long does {s} need to finish? | What is the duration of a session at {s}?
= observatory dome | OB | Hill Observatory | place keeper check dealer return
n refractor/lens telescope, reflector/mirror telescope, star camera/CCD camera, spectrograph,
  equatorial mount/tracking mount, sun filter/solar foil, sidereal clock/star clock, dew heater,
  meridian circle/transit instrument, radio dish/parabolic antenna, eyepiece set/ocular case
a brass, northern, remote-controlled, hundred-year-old, portable, wide-field, restored, heavy
t under the small dome, on the roof platform, from the Kiruna campaign, of the comet watchers,
  of the school programme, with the carbon tube, from the Hartwig bequest, of the night course
* target | the Crab Nebula, Vega, the Pleiades, Jupiter, the Andromeda Galaxy, Comet Lindblad,
  Epsilon Eridani, the Orion Nebula, Saturn | notes
- {s} is pointed at {o} this week | tonight {s} follows {o}
? Which object in the sky does {s} observe? | What are they watching through {s}?
= library desk | LB | Main Library | place keeper price return
n atlas/map volume, dictionary/word book, manuscript/handwritten codex, cookbook/recipe collection,
  newspaper volume/bound gazette, score/sheet music, microfilm/film reel, thesis/dissertation,
  letter collection/correspondence, field diary/travel journal, festschrift/memorial volume
a annotated, rare, three-volume, water-stained, bilingual, illustrated, anonymous, leather-bound
t on Baltic shipping, on alpine botany, from the Rosenthal estate, on Ottoman trade, on folk music,
  on glass making, from the closed stacks, on polar travel, on bridge building, on early printing
* shelf | @num 11 989 C | places
- the call mark of {s} is {o} | {s} stands under {o} | {s} was catalogued as {o}
? Under which signature is {s} shelved? | What is the shelf number of {s}?
* reader | @person | people
- {s} is waiting for {o} | {o} reserved {s} | {s} is put aside in the name of {o}
? Who has requested {s}? | For which patron is {s} being held?
= teaching office | CO | Agora | leader venue hour deadline
n seminar/discussion class, lecture/lecture series, lab course/practical, tutorial/exercise class,
  colloquium/research talk series, reading group/book circle, summer school/vacation course,
  language course/conversation class, project class/studio course, refresher/bridge course
a introductory, advanced, bilingual, weekly, compulsory, popular, intensive, evening, new, elective
t on fluid dynamics, on medieval law, on number theory, on soil science, on game theory,
  on Portuguese grammar, on machine ethics, on polymer physics, on urban history, on bird song
* credits | @num 2 12 credit points | notes
- {s} is worth {o} | whoever passes {s} earns {o}
? How many ECTS does {s} bring? | What does {s} count towards the degree?
* exam | an oral exam, a term paper, a take-home test, a poster, a group project | notes
- {s} ends with {o} | students finish {s} with {o}
? What kind of assessment has {s}? | How is {s} graded?
= dormitory phone | | Lindenhof Residence | phone mentor
n resident/tenant, floor speaker/corridor representative, exchange student/visiting student,
  night porter/late-shift doorman, laundry steward/washing-room helper, kitchen captain, subtenant
a first-year, second-year, quiet, helpful, newly arrived, vegetarian, early-rising, part-time
t from Tartu, from Lagos, from Porto, from Kyoto, from Bergen, from Izmir, from Lima, from Graz,
  on the garden side, on the attic floor, from the economics faculty, from the choir
* flat | @room | places | term
- {s} lives in {o} | the name plate at {o} belongs to {s} | {s} got the keys of {o}
? Where does {s} sleep? | What is the address of {s} in the hall?
* rent | @num 190 640 euros | costs | term
- {s} pays {o} a month | the monthly bill of {s} is {o}
? How high is the rent of {s}? | What does housing cost {s}?
* duty | watering the roof garden, emptying the bins, sorting the mail, airing the cellar,
  cleaning the stove, shovelling snow, booking the sauna, closing the gate | people
- {s} is in charge of {o} | the house list gives {s} the job of {o}
? Which chore was given to {s}? | What household task does {s} have?
= canteen till | CN | Refectory |
n lentil stew/pulse soup, noodle bowl/ramen, fish pie/seafood bake, salad plate/green platter,
  curry/masala dish, pancake stack/crêpes, risotto/creamy rice, dumplings/filled pasta,
  apple cake/fruit tart, bean chili/pepper pot, omelette/egg dish, vegetable roast
a spicy, smoky, gluten-free, vegan, weekday, cold, creamy, crunchy, festive, half-size
t with roasted almonds, with lemon sauce, for the late shift, from the Thursday buffet,
  with pickled onions, for the children's table, with fresh herbs, from the harvest menu
* allergen | peanuts, celery, mustard, sesame, lupin, shellfish, soy, walnuts | notes
- {s} contains {o} | the label of {s} warns of {o} | traces of {o} were found in {s}
? Which allergen is in {s}? | What should sensitive guests know about {s}?
* energy | @num 210 980 kilocalories | notes
- one helping of {s} has {o} | the kitchen counts {o} for {s}
? How nourishing is a serving of {s}? | What calorie figure is given for {s}?
* cook | @person | people
- {o} cooks {s} | {s} is made by {o} | the recipe of {s} is from {o}
? Which chef prepares {s}? | Who is behind the stove for {s}?
* serving | @num 3 19 euros | costs
- {s} sells for {o} | guests pay {o} for {s}
? How expensive is a plate of {s}? | What does the till charge for {s}?
* served | @date | dates
- {s} is back on the counter on {o} | the menu lists {s} for {o}
? When can I eat {s}? | On which day is {s} offered again?
= sports hall | SP | Arena | leader venue hour fee
n handball team/handball squad, climbing group/bouldering group, rowing crew/boat crew,
  fencing class/sabre class, yoga circle/stretching class, judo club/martial arts group,
  volleyball team/net-ball side, running group/jogging party, swim class/pool training, chess club
a women's, mixed, beginners', ambitious, undefeated, senior, early-morning, staff, junior
t of the law faculty, of the medical school, for night owls, of the Nordic cup, with the red shirts,
  of the dormitories, for returning athletes, of the spring league, with the drummers
* rival | Harbour College, Northgate Institute, Saint Brigid's, the Polytechnic, Valley University,
  the Naval School, Old Mill College | dates
- {s} faces {o} next | the coming match of {s} is against {o}
? Who is the opponent of {s}? | Which side will {s} play?
= clinic desk | | Health Centre | phone
n physiotherapist/movement therapist, nurse/ward sister, dentist/tooth doctor, optician/eye doctor,
  dietician/nutrition adviser, counsellor/listening service, paediatrician/child doctor, midwife,
  paramedic/ambulance medic, pharmacist/dispensing chemist
a visiting, head, deputy, bilingual, newly hired, part-time, senior, weekend, retired
t from the Geneva clinic, of the travel ward, for the sports injuries, for staff families,
  from the district hospital, of the vaccination team, for exchange students, of the sleep lab
* consulting | @slot | dates | term
- {s} sees people on {o} | the consultation of {s} opens on {o}
? During which hours may patients visit {s}? | When does the surgery of {s} start?
* surgery | @room | places | since
- {s} works in {o} | patients of {s} wait outside {o} | {s} moved into {o}
? Where is the practice of {s}? | Which door belongs to {s}?
* focus | back pain, hay fever, sleep trouble, sprained ankles, migraine, tick bites, stress | notes
- {s} specialises in {o} | cases of {o} are sent to {s}
? What complaint is {s} an expert for? | Which ailment does {s} treat?
* holiday | @date | dates
- {s} is away from {o} | the leave of {s} starts on {o}
? When does {s} go on vacation? | From which day is {s} absent?
= workshop | WS | Forge Yard | place keeper price dealer check return
n lathe/turning machine, bandsaw/ribbon saw, drill press/column drill, milling machine/cutter mill,
  welding set/arc welder, laser cutter/engraving machine, 3D printer/filament printer, anvil,
  sander/grinding belt, plotter/drawing machine, compressor/air tank, soldering station
a green, Swiss, vintage, rebuilt, rattling, double, compact, second-hand, cast-iron, sturdy
t by the loading ramp, of the apprentices, from the shipyard auction, with the foot pedal,
  of the robotics club, of the bicycle corner, with the chipped guard, of the model makers
* material | birch plywood, aluminium, acrylic glass, brass rod, oak, mild steel | notes
- {s} is set up for {o} | only {o} goes into {s}
? What stock can be worked with {s}? | Which raw stuff does {s} take?
= museum store | MU | Natural History House | place keeper return
n fern sheet/pressed fern, beetle case/coleoptera box, ammonite/spiral fossil, meteorite/sky stone,
  bird skin/stuffed bird, shell drawer/mollusc tray, mineral cluster/crystal group, tooth/molar,
  butterfly frame/lepidoptera frame, amber piece/fossil resin, nest/clutch display, skull cast
a iridescent, fragile, unlabelled, polished, tiny, mounted, famous, striped, faded, complete
t from Madagascar, from the Harz mines, of the Lindgren collection, from the 1874 voyage,
  from Oaxaca, from the Gobi trench, of the school loan box, from the Faroe cliffs
* worth | @num 300 99000 euros | costs
- {s} is insured for {o} | the appraiser put {s} at {o}
? What is the estimated value of {s}? | How much would we claim if {s} were lost?
* treatment | freezing, silica gel, beeswax, new pins, a nitrogen bag, acid-free card | notes
- {s} was conserved with {o} | the restorer prescribed {o} for {s}
? What keeps {s} from decaying? | Which method preserves {s}?
= music school | MS | Concert House | place keeper price check return
n cello/bass violin, harpsichord/plucked keyboard, bassoon/low reed, grand piano/concert piano,
  viola/tenor fiddle, timpani/kettledrums, French horn/valve horn, marimba/wooden xylophone,
  flute/traverse, double bass/contrabass, oboe, concertina/squeezebox
a walnut, Baroque, cherry-red, student, silver, mellow, rented, antique, cracked, bright
t of the string quartet, from the Vienna workshop, of the film orchestra, with the carved head,
  of the Tuesday ensemble, from the chapel, of the conducting class, with the blue case
* player | @person | people | term
- {o} plays {s} | {s} was lent to {o} | {o} practises on {s}
? Which musician uses {s}? | In whose hands is {s} for rehearsals?
* pitch | @num 409 446 hertz | notes
- {s} is tuned to {o} | the tuner left {s} at {o}
? What concert A does {s} have? | At which frequency does {s} sound?
= server room | CC | Turing Annex | place keeper price dealer check
n file server/storage node, mail gateway/post relay, backup robot/tape library, switch/data router,
  GPU node/accelerator box, login host/shell machine, licence server/key daemon, firewall,
  print server/spooler, web proxy/cache host, test cluster/sandbox machines
a redundant, virtual, overheated, mirrored, leased, encrypted, air-cooled, rack-mounted, silent
t of the climate modellers, of the registrar, in the second aisle, from the Lyon contract,
  of the image archive, behind the cold wall, of the genome pipeline, for guest accounts
* outage | @date | dates
- {s} will be down on {o} | the admins reboot {s} on {o}
? When is {s} unavailable? | On what day does {s} go offline?
= excursion office | EX | Travel House | leader deadline fee
n glacier hike/ice walk, harbour tour/dock visit, canoe trip/paddling weekend, gallery day,
  bird walk/ornithology outing, quarry visit/stone-pit tour, city tour/town ramble,
  volcano trip/crater trek, factory visit/plant inspection, cave descent/grotto tour
a two-day, guided, rainy-season, family, geography, low-cost, long-distance, annual, winter
t to the Lofoten islands, to the salt coast, for new staff, to the Drava valley, by night train,
  of the alumni club, to the Silver Mountains, of the geology course, to the border lakes
* departure | @date | dates
- {s} leaves on {o} | the bus for {s} starts on {o} | the group of {s} sets off on {o}
? When does {s} depart? | On which day do we travel with {s}?
= theatre foyer | TH | Playhouse | leader venue deadline fee
n comedy/farce, puppet play/marionette show, film night/movie evening, opera evening/music drama,
  improv show/unscripted show, radio play/audio drama, tragedy/sad drama, dance piece/ballet,
  monologue/one-person show, musical/song-and-dance show, shadow play/silhouette show
a sold-out, experimental, silent, Icelandic, open-air, midnight, award-winning, short, student
t about a lighthouse, about two bakers, by the alumni troupe, about the last tram, from the Ghent
  festival, by the masked players, about a stolen clock, of the puppet week, about bees
* premiere | @date | dates
- {s} opens on {o} | the curtain rises for {s} on {o}
? When is the first performance of {s}? | On what evening is {s} shown initially?
* prop | a rowing boat, three lanterns, a stuffed fox, a red umbrella, a gramophone, forty masks,
  a folding ladder | notes
- {s} calls for {o} | the props room made {o} for {s}
? What stage object is wanted in {s}? | Which requisite does {s} depend on?
= greenhouse | GH | Botanical Garden | place keeper return check
n orchid/epiphyte, cactus/succulent, tree fern/fern tree, pitcher plant/insect-eating plant,
  lemon tree/citrus, lotus/water lily, cycad/palm fern, passion vine/passiflora, bonsai, vanilla,
  agave/century plant, coffee shrub/arabica bush
a flowering, wilting, potted, variegated, giant, rescued, thorny, scented, dwarf, rooted
t from the Canary bed, of the pollination study, in the mist house, from the Kew exchange,
  of the evolution trail, under the east glass, from the customs seizure, of the drought trial
* watering | @num 2 30 days | dates
- {s} is watered every {o} | {s} gets water once in {o}
? How often should {s} drink? | What is the irrigation interval for {s}?
* feed | bone meal, diluted nettle brew, orchid bark, iron salts, compost tea, rock dust | notes
- {s} thrives on {o} | the gardener gives {o} to {s}
? Which fertiliser suits {s}? | What nutrient is added for {s}?
= boiler room | HS | Plant House | place keeper price dealer check
n heat pump/thermal pump, boiler/furnace, lift/elevator, ventilation shaft/air duct, smoke alarm,
  fire door/safety door, water meter/flow counter, solar panel/photovoltaic module, sump pump,
  transformer/voltage converter, radiator/heating element, emergency light/exit lamp
a rusty, basement, noisy, insulated, replaced, eastern, jammed, certified, backup, humming
t in the north wing, of the swimming pool, under the lecture hall, from the 2019 retrofit,
  of the library tower, behind the kitchen, of the dormitory block, near the bicycle cellar
* fault | E11, E27, F03, F19, K40, P08, P52, T77 | notes
- {s} shows error {o} | error {o} keeps coming up at {s}
? What failure code is displayed by {s}? | Which malfunction did {s} announce?
"""


@dataclass(frozen=True)
class Attribute:
    """What can be said of a thing: where its values come from, how it is stated and asked."""

    name: str
    values: tuple[str, ...]
    namespace: str
    validity: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """One part of campus life: its things, what distinguishes them, what is said of them."""

    label: str
    prefix: str
    building: str
    nouns: tuple[tuple[str, str], ...]
    adjectives: tuple[str, ...]
    tails: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def _split(text: str, mark: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(mark))


def _blocks(text: str, mark: str) -> list[list[str]]:
    """Join continued lines, then cut before every line that starts with `mark`."""
    lines = text.strip().replace("\n  ", " ").split("\n")
    starts = [i for i, line in enumerate(lines) if line[0] == mark] + [len(lines)]
    return [lines[a:b] for a, b in pairwise(starts)]


def _attributes(lines: list[str]) -> list[Attribute]:
    found = []
    for head, statements, questions in _blocks("\n".join(lines), "*"):
        name, values, namespace, *validity = _split(head[1:], "|")
        listed = (values,) if values[0] == "@" else _split(values, ",")
        said, asked = _split(statements[1:], "|"), _split(questions[1:], "|")
        found.append(Attribute(name, listed, namespace, "".join(validity), said, asked))
    return found


@cache
def topics() -> tuple[Topic, ...]:
    """Read :data:`TOPICS`; each topic lists its shared attributes before its own."""
    shared = {a.name: a for a in _attributes(SHARED.strip().split("\n"))}
    found = []
    for head, nouns, adjectives, tails, *rest in _blocks(TOPICS, "="):
        label, prefix, building, names = _split(head[1:], "|")
        pairs = [(*_split(n, "/"), *_split(n, "/"))[:2] for n in _split(nouns[1:], ",")]
        found.append(
            Topic(
                label,
                prefix,
                building,
                tuple((first, other) for first, other in pairs),
                _split(adjectives[1:], ","),
                _split(tails[1:], ","),
                (*(shared[n] for n in names.split()), *_attributes(rest)),
            )
        )
    return tuple(found)
