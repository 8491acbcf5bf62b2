"""Word lists of the rules, about the world: what is the same, a kind of something, or its opposite.

The lists are small on purpose. A word that is not in them is compared by its spelling alone, and a
difference between two unknown words is never taken for a contradiction.
"""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a list, in order."""
    return text.split()


def group(text: str) -> frozenset[str]:
    """The words of a list whose order means nothing."""
    return frozenset(text.split())


# Words that say the same for our purpose; the first stands for all. Forms are inflected elsewhere.
SAME = """
person human individual someone somebody anyone anybody people | man guy gentleman | woman lady
child kid youngster | baby infant | boy lad | big large huge giant enormous | small little tiny
fast quick rapid | quiet silent | loud noisy | jump leap bounce hop | talk speak chat
cut slice chop | run jog | throw toss | shout yell | look watch stare observe view | walk stroll
hike trek | lie lay recline | begin start commence | stop halt cease | close shut | buy purchase
repair fix mend | cost charge bill price | show display | say state | need require | stay remain
hold keep | street road | sea ocean | photo picture image | shop store | sofa couch
forest wood | happy glad pleased delighted cheerful | sad unhappy miserable | ill sick unwell
angry mad | clean tidy | wrong incorrect | right correct | near nearby | far distant
hard difficult | inside indoors indoor | outside outdoors outdoor | bicycle bike cycle
motorcycle motorbike | plane airplane aeroplane aircraft | boat ship vessel | lorry truck
car automobile | phone telephone | film movie | flat apartment | rubbish garbage trash
autumn fall | cellar basement | grey gray | purple violet | aluminium aluminum | wood wooden
wool woollen | gold golden | whisky whiskey | aubergine eggplant | courgette zucchini
dinner supper | cook chef | police policeman policewoman | holiday vacation | trip journey
allergy allergic | old elderly aged | day daytime | night nighttime | usa america | britain uk
netherlands holland | dead deceased | arrive land | leave depart | work function operate
broken faulty defective out_of_order | cancel cancelled | forbid prohibit ban | allow permit
accept approve | reject refuse decline | increase grow | decrease shrink diminish
remove withdraw | wear dress | ride drive | prefer like | expensive costly | wet soaked
naked nude | asleep sleep sleeping | awake waking | continue go_on goes_on
still motionless stationary immobile
"""

# General words, and what is a kind of each: a word and its kinds never exclude each other. After an
# exclamation mark, the kinds of one line exclude each other in one place of a sentence.
KINDS = """
person ! man woman child boy girl baby
person : adult teenager player | adult : man woman | child : boy girl baby
person ! doctor nurse teacher student lawyer engineer farmer cook pilot soldier police singer
relative ! mother father brother sister son daughter husband wife uncle aunt
animal ! dog cat horse cow pig sheep goat donkey rabbit mouse rat squirrel bear wolf fox lion tiger
+ elephant giraffe zebra monkey deer kangaroo camel bird fish turtle frog snake insect duck chicken
+ parrot eagle owl penguin shark salmon puppy kitten
dog : puppy | cat : kitten | bird : duck chicken parrot eagle owl penguin | fish : shark salmon
vehicle ! car bus lorry van tram train plane boat bicycle motorcycle helicopter tractor ferry canoe
+ taxi
boat : ferry canoe | car : taxi | traffic ! rail road air sea
instrument ! guitar piano violin cello drum flute trumpet trombone saxophone clarinet harp banjo
+ accordion harmonica ukulele tambourine oboe tuba french_horn
drink ! water milk tea coffee juice lemonade beer wine whisky vodka gin rum tequila champagne cider
+ soda brandy
juice : lemonade | wine : champagne
alcohol : beer wine whisky vodka gin rum tequila champagne cider brandy
vegetable ! carrot potato tomato onion cabbage lettuce spinach broccoli cucumber pepper celery
+ pumpkin aubergine garlic leek bean pea corn mushroom radish cauliflower courgette avocado
fruit ! apple banana pear peach plum cherry grape lemon mango pineapple melon strawberry
food : meat bread rice cheese vegetable fruit fish egg pasta soup cake meal
meal ! breakfast lunch dinner
room ! kitchen bathroom bedroom living_room dining_room classroom garage office attic cellar
building : room
place ! park library museum school hospital church hotel restaurant theatre station airport factory
+ shop bank prison stadium beach
material ! steel iron aluminium copper bronze brass tin wood plastic glass paper cardboard leather
+ cotton wool silk stone brick concrete cement rubber clay marble ceramic granite sand
metal : steel iron aluminium copper bronze brass tin | stone : marble granite | concrete : cement
sport ! football basketball baseball tennis golf hockey rugby cricket volleyball
colour ! red blue green yellow orange purple pink brown black white grey silver gold beige
planet ! mercury venus earth mars jupiter saturn uranus neptune
direction ! north south east west | season ! spring summer autumn winter
painting ! watercolour oil
country ! argentina australia austria belgium brazil canada chile china colombia cuba denmark egypt
+ england finland france germany ghana greece hungary iceland india indonesia iran iraq ireland
+ israel italy japan kenya malaysia mexico morocco nepal netherlands nigeria norway pakistan peru
+ philippines poland portugal russia scotland singapore spain sweden switzerland thailand turkey
+ ukraine usa britain venezuela vietnam south_africa new_zealand north_korea south_korea
foreigner ! american australian austrian belgian brazilian british canadian chinese cuban danish
+ dutch egyptian french german greek indian iranian irish israeli italian japanese korean mexican
+ norwegian polish portuguese russian scottish spanish swedish swiss thai turkish vietnamese
+ north_korean south_korean
"""

# Left and right of the bar exclude each other.
OPPOSITE = """
open | close ; on | off ; alive living | dead ; present | absent
active | cancel expired ended hold ; enable | disable ; arm | disarm ; true | false
full | empty ; hot warm | cold cool ; big | small ; tall high | short low ; long | short
wide broad | narrow ; thick | thin ; deep | shallow ; heavy | light ; fast | slow ; early | late
old | young new ; good great | bad terrible ; left | right ; right true | wrong
rich wealthy | poor ; wet | dry ; clean | dirty messy ; dark | bright light ; loud | quiet
strong | weak ; soft easy | hard ; happy | sad angry ; beautiful pretty | ugly ; asleep | awake
inside | outside ; near close | far ; up | down ; above | below under ; over | under below
before | after ; first | last ; in | out ; from | to ; onto | off ; begin | stop end finish
arrive enter | leave ; continue ongoing | stop over end finish ; buy | sell ; push | pull
lift raise | lower drop ; win | lose ; pass | fail ; rise increase | fall decrease drop
accept grant | reject deny ; allow | forbid ; love prefer | hate dislike ; remember | forget
build | destroy demolish ; hit catch | miss ; give | take ; send | receive
laugh smile | cry weep frown ; fill | empty drain ; appear | disappear vanish
attach add put | remove detach ; pour | remove ; intact | damage broken ; work run | broken stop
valid | expired void ; available | sold ; complete | partial ; retract | extend ; male | female
married | divorced ; day | night ; public | private ; guilty | innocent ; safe | dangerous
healthy well | ill ; sober | drunk ; permanent | temporary ; manual | automatic
horizontal | vertical ; raw | cooked ; fresh | stale rotten ; sharp | blunt ; smooth | rough
straight | curved bent ; tight | loose ; cheap | expensive ; crowded busy | deserted empty
calm | stormy ; sunny | cloudy rainy ; urban | rural ; positive | negative ; more | less fewer
moving | still ; naked | clothed ; hungry | full ; polite | rude ; kind | cruel
top | bottom ; front | back rear ; upstairs | downstairs ; forward | backward
interior | exterior ; friend ally | enemy ; natural | artificial ; lose | find ; pro | anti
victory | defeat ; profit | loss ; import | export ; lend | borrow ; eat | fast ; talk | quiet
ancient old | modern ; major | minor ; same | different ; toward | away
best | worst ; freeze | melt boil
join | quit ; success | failure ; everywhere | nowhere
winner | loser ; single | married
solid | liquid ; sweet | sour bitter ; simple | complex ; maximum | minimum ; ahead | behind
"""

PREFIXES = ("un", "non", "in", "im", "ir", "il", "dis")
# Words that only look like a negated shorter one.
NOT_NEGATED = group(
    "until unit union unite under uncle unless universe uniform discover display discount"
    " dispatch dispose dislike distribute disorder discourse inform invent invest intend income"
    " inside indoor inland import impress improve impart impose impact inlet input indeed"
    " invaluable inflammable intense into disclose illuminate irony ironed image imagine"
)

# Forms that no rule of inflection reaches; the first is the word.
IRREGULAR = """
run ran | sit sat | stand stood | lie lying lain lies | eat ate eaten | drink drank drunk
go went gone | take took taken | give gave given | make made | get got | hold held
ride rode ridden | drive drove driven | fly flew flown | sing sang sung | swim swam
break broke | speak spoke spoken | wear wore worn | throw threw thrown | tell told
know knew known | find found | feel felt | buy bought | sell sold | lose lost | win won
keep kept | send sent | build built | meet met | pay paid | say said | write wrote written
see saw seen | come came | begin began begun | fall fell fallen | rise rose risen | grow grew
leave leaving leaves | lend lent | catch caught | bite bit bitten | bring brought | teach taught
think thought | sleep slept | shut shutting | put putting | cut cutting | hit hitting | man men
woman women | child children | foot feet | tooth teeth | mouse mice | wolf wolves
freeze froze frozen | melt molten | forget forgot forgotten | tie tying tied
die died dying dies | dead die | damage damaged | retract retracted | quit quitting
"""

IRREGULAR_PAST = frozenset(
    word for group in IRREGULAR.replace("\n", " | ").split("|") for word in group.split()[1:]
)
